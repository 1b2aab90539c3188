"""Files of a project, packed into an archive that travels to the pods of a TrainJob."""

from trainjob.project_code.files import ProjectFile
from trainjob.project_code.packing import ARCHIVE_SUFFIX, list_files, pack, write_archive
from trainjob.project_code.request import pack_request

__all__ = ["ARCHIVE_SUFFIX", "ProjectFile", "list_files", "pack", "pack_request", "write_archive"]
