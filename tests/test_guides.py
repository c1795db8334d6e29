"""Guides: every page runs from top to bottom, prints the outputs that it shows, and draws its pictures."""

from pathlib import Path

import pytest

from tests.helpers.pages import agree, blocks_of, pictures_of, run, words_in
from tests.helpers.paths import ROOT

GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))


# raised within torch and onnxscript, by the export to ONNX
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = 0
    for block, printed in run(page, tmp_path):
        if block.output is not None:
            shown += 1
            assert agree(block.output, printed), f"{page.name}, line {block.line}: it printed\n{printed}"
        elif block.language == "python":
            assert printed == "", f"{page.name}, line {block.line}: the page does not show this output"
    pictures = pictures_of(page.read_text(encoding="utf-8"))
    assert shown
    assert pictures
    for name in pictures:
        assert words_in(tmp_path / name) == words_in(page.parent / name), (
            f"{name}: python -m tests.helpers.pages {page}"
        )


class TestTheRunnerOfPages:
    PAGE = """Words.

```python
print(1.234, "a")
```

```text
1.2341 a
```

<!-- not run -->
```python
raise AssertionError
```

```python
x = 1 / 0
```
"""

    def test_it_finds_the_code_and_its_output(self) -> None:
        first, second = blocks_of(self.PAGE)
        assert first.output == "1.2341 a\n"
        assert self.PAGE[slice(*first.span)] == first.output
        assert (second.output, second.code) == (None, "x = 1 / 0\n")

    def test_an_error_names_the_line_of_the_page(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(self.PAGE)
        with pytest.raises(ZeroDivisionError) as error:
            run(page, tmp_path)
        assert self.PAGE.splitlines()[error.traceback[-1].lineno] == "x = 1 / 0"

    @pytest.mark.parametrize("printed", ["a 1.0 7 12 %", "a  1.04 8\n13 %"])
    def test_last_digits_and_space_do_not_count(self, printed: str) -> None:
        assert agree("a 1.0 7 12 %", printed)

    @pytest.mark.parametrize(
        "printed", ["b 1.0 7 12 %", "a 1.2 7 12 %", "a 1.0 9 12 %", "a 1.0 7", "a 1.0 7 12 % more"]
    )
    def test_all_else_does(self, printed: str) -> None:
        assert not agree("a 1.0 7 12 %", printed)
