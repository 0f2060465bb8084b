"""Each error a person may see has its own exit code."""

from nllb_cli import errors
from nllb_cli.errors import ExitCode, NllbError


def test_codes_are_what_the_readme_says():
    codes = {kind.__name__: int(kind.exit_code) for kind in NllbError.__subclasses__()}
    assert codes == {"UsageError": 2, "InputError": 3, "ModelError": 4, "DeviceError": 5}
    assert (ExitCode.BAD_ROWS, ExitCode.INTERRUPTED, ExitCode.TERMINATED) == (1, 130, 143)


def test_no_two_outcomes_share_a_code():
    assert len({int(code) for code in ExitCode}) == len(ExitCode.__members__)


def test_a_message_is_its_text():
    assert str(errors.InputError("data.jsonl:7: broken JSON")) == "data.jsonl:7: broken JSON"
