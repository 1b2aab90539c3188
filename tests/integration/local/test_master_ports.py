"""Ports of distributed jobs: each JobSet of a laptop cluster has a port of its own."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading

import pytest

from tests.integration.local.cluster_client import NAMESPACE, ClusterClient, train_job
from trainjob import CustomTrainer, RunKey, TrainJob, submit, wait
from trainjob.lifecycle import Listener
from trainjob_local.kubelet.master_ports import TRAINER_PORT, MasterPorts, NoFreePort

# Rank 0 listens on all interfaces, as torch's TCPStore does, until both jobs listen. Rank 1 connects to it.
RENDEZVOUS = """
import os, pathlib, socket, sys, time
job, host, port, folder = *sys.argv[1:4], pathlib.Path(sys.argv[4])
deadline = time.monotonic() + 60

def wait(condition):
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

assert port == os.environ["PET_MASTER_PORT"]
if os.environ["PET_NODE_RANK"] == "0":
    with socket.create_server(("", int(port))) as server:
        (folder / job).touch()
        wait(lambda: len(list(folder.iterdir())) == 2)
        peer, _ = server.accept()
        print(f"rank 0 of {job} met {peer.recv(100).decode()}")
else:
    wait(lambda: len(list(folder.iterdir())) == 2)
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(f"rank 1 of {job}".encode())
"""


@pytest.fixture(scope="module")
def client(laptop):
    opened = ClusterClient(laptop.kubeconfig)
    yield opened
    opened.close()


def pod(uid, jobset=""):
    return {"metadata": {"uid": uid, "labels": {"jobset.sigs.k8s.io/jobset-uid": jobset} if jobset else None}}


@pytest.fixture
def free_ports():
    """Return three ports that no process uses, in the order in which they are chosen."""
    found = []
    for port in random.sample(range(20000, TRAINER_PORT), 1000):  # not ephemeral, so no connection takes them meanwhile
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            found.append(port)
        if len(found) == 3:
            return found
    raise AssertionError("no free ports")


def test_pods_of_a_jobset_share_a_port_until_the_last_ends(free_ports):
    ports = MasterPorts(free_ports)
    first = ports.acquire(pod("a0", "a"))
    assert [ports.acquire(pod(uid, "a")) for uid in ("a0", "a1")] == [first, first]
    ports.release(pod("a0", "a"))
    other = ports.acquire(pod("b0", "b"))
    assert (first, other) == tuple(free_ports[:2])
    assert ports.acquire(pod("a2", "a")) == first  # a1 still runs
    for uid in ("a1", "a2", "a2"):
        ports.release(pod(uid, "a"))
    assert ports.acquire(pod("c0", "c")) == first
    for uid, jobset in (("b0", "b"), ("c0", "c"), ("d0", "d")):
        ports.release(pod(uid, jobset))


def test_two_kubelets_of_a_machine_choose_different_ports(free_ports):
    kubelets = [MasterPorts(free_ports) for _ in range(2)]
    assert [one.acquire(pod("a0", "a")) for one in kubelets] == free_ports[:2]
    for one in kubelets:
        one.release(pod("a0", "a"))


def test_a_used_port_is_not_chosen(free_ports):
    """A port in use is skipped: another program listens, or a connection has ended within the last minute."""
    ports = MasterPorts(free_ports)
    with socket.create_server(("127.0.0.1", free_ports[0])), socket.create_server(("", free_ports[1])) as server:
        with socket.create_connection(("127.0.0.1", free_ports[1])) as ours:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first keeps the port
            assert ours.recv(1) == b""
        server.close()
        assert ports.acquire(pod("a0", "a")) == free_ports[2]
        with pytest.raises(NoFreePort, match=f"no port from {free_ports[0]} to {free_ports[2]} is free"):
            ports.acquire(pod("b0", "b"))
    ports.release(pod("a0", "a"))


def test_threads_of_different_jobsets_get_different_ports(free_ports):
    ports, barrier, chosen = MasterPorts(free_ports), threading.Barrier(6), {}

    def run(jobset, uid):
        barrier.wait(10)
        chosen[uid] = ports.acquire(pod(uid, jobset))

    pods = [(jobset, jobset + number) for jobset in "abc" for number in "01"]
    threads = [threading.Thread(target=run, args=one) for one in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {frozenset(chosen[jobset + number] for number in "01") for jobset in "abc"} == {
        frozenset([port]) for port in free_ports
    }
    for jobset, uid in pods:
        ports.release(pod(uid, jobset))


def test_a_pod_without_a_jobset_keeps_the_trainers_port():
    ports = MasterPorts([])
    assert ports.acquire(pod("a")) == TRAINER_PORT
    ports.release(pod("a"))


def is_finished(job):
    return any(one["type"] in ("Complete", "Failed") for one in job.get("status", {}).get("conditions", []))


def read_logs(client, name):
    """Return the logs of a job's pods, in the order of their ranks."""
    pods = client.core.list_namespaced_pod(NAMESPACE, label_selector=f"jobset.sigs.k8s.io/jobset-name={name}").items
    names = [pod.metadata.name for pod in sorted(pods, key=lambda pod: pod.spec.hostname)]
    read = client.core.read_namespaced_pod_log
    return [read(name, NAMESPACE, _preload_content=False).data.decode() for name in names]


def test_two_jobs_at_once_meet_at_their_own_ports(client, unique, tmp_path):
    names = [f"{unique}-{letter}" for letter in "ab"]
    for name in names:
        words = (name, "$(PET_MASTER_ADDR)", "$(PET_MASTER_PORT)", str(tmp_path))
        client.create_job(train_job(name, sys.executable, "-c", RENDEZVOUS, *words, trainer={"numNodes": 2}))
    for name in names:
        client.wait_for(name, is_finished)
    assert [read_logs(client, name)[0] for name in names] == [f"rank 0 of {one} met rank 1 of {one}\n" for one in names]


def report_world(folder, expected):
    import os
    import time
    from pathlib import Path

    import torch
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel

    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    (Path(folder) / f"{os.environ['HOSTNAME']}").touch()
    deadline = time.monotonic() + 120
    while len(list(Path(folder).iterdir())) < expected:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    model(torch.ones(1, 1) * (rank + 1)).sum().backward()
    print(f"rank {rank} of {size}: gradient {model.module.weight.grad.item()}")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.torchtune
def test_two_ddp_trainings_at_once(cluster, unique, tmp_path):
    """Two gloo trainings with two pods each run at the same time, each with a world of two processes."""
    arguments = {"folder": str(tmp_path), "expected": 4}
    job = TrainJob(trainer=CustomTrainer(func=report_world, func_args=arguments, num_nodes=2, num_proc_per_node=1))
    references = [submit(cluster, job, RunKey("test", "ports", unique, f"run-{number}")) for number in (1, 2)]
    lines, outcomes = {0: [], 1: []}, {}

    def run(number):
        outcomes[number] = wait(cluster, references[number], listener=Listener(on_log=lines[number].append))

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (0, 1):
        outcomes[number].raise_for_failure()
        expected = {f"[node-{rank}] rank {rank} of 2: gradient 1.5" for rank in (0, 1)}
        assert {str(line) for line in lines[number]} >= expected
