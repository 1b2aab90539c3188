"""Progress out of log lines as TorchTune 0.6.1 writes them."""

from __future__ import annotations

from trainjob.status import Progress, TorchTuneProgress

FRAME = "2|84|Loss: 0.2017218917608261: 100%|██████████| 42/42 [00:00<00:00, 78.82it/s]"


def read(*lines):
    reader = TorchTuneProgress()
    return [progress for line in lines if (progress := reader.feed(line))]


def test_a_frame_with_the_configuration_before_it():
    [progress] = read("epochs: 4", FRAME)
    assert progress == Progress(step=84, total=168, epoch=2, epochs=4, loss=0.2017218917608261)
    assert progress.percent == 50.0
    assert str(progress) == "step 84/168 (50 %), epoch 2/4, loss 0.2017"


def test_without_the_configuration_the_total_is_unknown():
    [progress] = read(FRAME)
    assert (progress.total, progress.percent) == (None, None)


def test_a_step_counts_once_and_never_goes_back():
    frames = [FRAME.replace("|84|", f"|{step}|") for step in (1, 1, 2, 3, 2)]
    assert [progress.step for progress in read("epochs: 4", *frames)] == [1, 2, 3]


def test_metric_lines_and_what_is_no_number():
    [progress] = read("Step 6 | loss:2.42 lr:0.003 tokens_per_second_per_gpu:7452.2 ")
    assert (progress.step, progress.loss) == (6, 2.42)
    [progress] = read(FRAME.replace("0.2017218917608261", "nan"))
    assert progress.loss is None


def test_other_lines_say_nothing():
    assert read("INFO:torchtune.utils._logging:Model is initialized", "", "Loss: 3", "epochs: many") == []
