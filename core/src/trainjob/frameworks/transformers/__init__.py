"""Checkpoints of transformers' Trainer in the training's pod: complete ones, resuming, and a save after SIGTERM.

Programs of frameworks use these modules. A Python function with `CustomTrainer(resume=True)` gets them in its pod:

    def train():
        from trainjob.frameworks.transformers.callback import CheckpointCallback
        from trainjob.frameworks.transformers.start import find_checkpoint_to_resume
        ...
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[CheckpointCallback()])
        trainer.train(resume_from_checkpoint=find_checkpoint_to_resume(arguments.output_dir))

They are packed into the pod's command, and import the standard library, torch and transformers only.
"""
