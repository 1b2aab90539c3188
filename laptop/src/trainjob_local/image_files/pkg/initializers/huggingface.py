"""Download of a repository of the Hugging Face hub.

A dataset is always a whole repository: in `hf://org/name/folder` the folder is ignored. A model must be
`hf://org/name`. Of a model only the files `*.json`, `*.safetensors`, `*.model` and `*.txt` are downloaded, from all
folders.
Source: Trainer 2.3 `pkg/initializers/{dataset,model}/huggingface.py`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pkg.initializers.progress import Progress
from pkg.initializers.request import DownloadFailed, Request

__all__ = ["download"]

_MODEL_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt"]
_WORKERS = 8


def download(request: Request) -> None:
    """Download the files of the repository that are not in the target folder yet.

    Raises:
        DownloadFailed: the repository cannot be read, or has no matching file.
    """
    # A log needs one line per file, not progress bars. huggingface_hub reads this variable when it is imported.
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    repository = _repository(request)
    try:
        _download(request, repository)
    except DownloadFailed:
        raise
    except Exception as failure:
        raise DownloadFailed(_explain_failure(request, repository, failure)) from failure


def _repository(request: Request) -> str:
    parts = request.location.split("/")
    if request.kind == "dataset":
        parts = parts[:2]
    if len(parts) != 2 or not all(parts):
        raise DownloadFailed(f"STORAGE_URI {request.uri!r} names no repository of the hub; use hf://org/name")
    return "/".join(parts)


def _download(request: Request, repository: str) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    # Not snapshot_download: if the hub refuses access, it returns the files of an earlier download in the folder.
    api: Any = HfApi(token=request.options.get("ACCESS_TOKEN"))
    commit = api.repo_info(repository, repo_type=request.kind).sha
    tree = api.list_repo_tree(repository, recursive=True, revision=commit, repo_type=request.kind)
    sizes = {entry.path: entry.size for entry in tree if hasattr(entry, "size")}
    files = list(
        filter_repo_objects(
            sizes,
            allow_patterns=_MODEL_PATTERNS if request.kind == "model" else None,
            ignore_patterns=list(request.ignore_patterns) or None,
        )
    )
    if not files:
        raise DownloadFailed(
            f"no file of {request.uri} matches the patterns; its files: {', '.join(sorted(sizes)[:10]) or 'none'}"
        )
    progress = Progress(request, [sizes[file] for file in files])

    def fetch(file: str) -> None:
        api.hf_hub_download(repository, file, repo_type=request.kind, revision=commit, local_dir=request.target)
        progress.report_file(file, sizes[file])

    with ThreadPoolExecutor(_WORKERS) as workers:
        for _ in workers.map(fetch, files):
            pass


def _explain_failure(request: Request, repository: str, failure: Exception) -> str:
    status = getattr(getattr(failure, "response", None), "status_code", None)
    kind = type(failure).__name__
    if kind == "GatedRepoError" or status == 403:
        advice = f"request access to {repository} on the hub, and set ACCESS_TOKEN to a token with that access"
        return f"no access to {request.uri} (HTTP {status}): {advice}"
    if kind == "RepositoryNotFoundError":
        return f"no {request.kind} {repository} on the hub (HTTP {status}), or it is private: check name and token"
    if status == 401:
        return f"the hub rejects this ACCESS_TOKEN (HTTP 401) for {request.uri}: check the token"
    return f"{request.uri} cannot be downloaded: {kind}: {' '.join(str(failure).split())[:300]}"
