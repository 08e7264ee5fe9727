"""A Python of its own that has all installed packages but Gnomon."""

import sysconfig
import venv
from pathlib import Path

OURS = ("__editable__", "gnomon")


def python_without_gnomon(folder: Path) -> Path:
    """Make a virtual environment in a new folder; its site-packages hold links to what this Python has, but Gnomon.
    Returns its `python`."""
    venv.create(folder, symlinks=True)
    shared = folder / "shared"
    shared.mkdir()
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(site).iterdir():
            if not entry.name.startswith(OURS) and entry.suffix != ".pth":
                (shared / entry.name).symlink_to(entry)
    [site_packages] = folder.glob("lib/python*/site-packages")
    (site_packages / "shared.pth").write_text(f"{shared}\n")
    return folder / "bin" / "python"
