"""A translation in another script is told, names and abbreviations are not."""

import pytest

from nllb_cli.text.scripts import Scripts

IDS = {
    code: number
    for number, code in enumerate(
        ["eng_Latn", "rus_Cyrl", "npi_Deva", "jpn_Jpan", "zho_Hans", "kor_Hang", "tha_Thai",
         "pes_Arab", "ory_Orya", "ell_Grek", "xyz_Latn", "fr"]
    )
}  # fmt: skip
RIGHT = [
    ("eng_Latn", "The meeting is at five."),
    ("eng_Latn", "Ça, c’est «naïve»: œuvre, Ångström, ħ"),
    ("eng_Latn", "He said спасибо and left."),
    ("rus_Cyrl", "Это Windows 11 от Microsoft, и она работает."),
    ("rus_Cyrl", "Microsof"[:7]),
    ("npi_Deva", "नमस्ते, तपाईंलाई कस्तो छ?"),
    ("jpn_Jpan", "コーヒーを一杯ください。"),
    ("zho_Hans", "会议在五点开始，请准时。"),
    ("kor_Hang", "회의는 다섯 시에 시작합니다."),
    ("tha_Thai", "สวัสดีครับ ยินดีที่ได้รู้จัก"),
    ("pes_Arab", "جلسه ساعت پنج شروع می‌شود."),
    ("ory_Orya", "ନମସ୍କାର, ଆପଣ କେମିତି ଅଛନ୍ତି"),
    ("ell_Grek", "Η συνάντηση είναι στις πέντε."),
    ("fr", "La réunion est à cinq heures."),
    ("xyz_Latn", "ऐसा ही कुछ यहाँ लिखा है"),  # a code that the table lacks: its script is not known
    ("eng_Latn", "12345678 ... 90 !!! ()"),
]
WRONG = [
    ("eng_Latn", "म आज घर जान्छु, तपाईं?"),
    ("rus_Cyrl", "The meeting is at five."),
    ("jpn_Jpan", "The meeting is at five."),
    ("zho_Hans", "회의는 다섯 시에 시작합니다."),
    ("ell_Grek", "Встреча в пять часов."),
    ("fr", "Встреча в пять часов."),
]


@pytest.mark.parametrize(("code", "text"), RIGHT)
def test_right(code, text):
    assert not Scripts(IDS).is_other(text, IDS[code])


@pytest.mark.parametrize(("code", "text"), WRONG)
def test_wrong(code, text):
    assert Scripts(IDS).is_other(text, IDS[code])


def test_every_script_of_the_table_knows_its_own_letters():
    """A sample of each language's letters is not to be had here, but its script's name is."""
    from nllb_cli.languages import family_languages
    from nllb_cli.text.scripts import _FIRST_WORDS

    for family in ("nllb", "m2m100"):
        for language in family_languages(family):
            assert language.script.split(" ")[0] in _FIRST_WORDS, language
