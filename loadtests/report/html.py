"""Templates of the pages; each page is one file that fetches nothing."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

SHARED = Path(__file__).parent / "templates"


def template(path: Path) -> Template:
    """It may extend and import those of `SHARED`."""
    environment = Environment(
        loader=FileSystemLoader([path.parent, SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(path.name)
