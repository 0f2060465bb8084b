"""Language codes and names: every alias leads to a code that exists, and nothing is guessed."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nllb_cli import languages
from nllb_cli.errors import ExitCode, UsageError
from nllb_cli.languages import describe, family_languages, name_of, resolve

NLLB = [language.code for language in family_languages("nllb")]
M2M100 = [language.code for language in family_languages("m2m100")]
BUNDLED = ["deu_Latn", "eng_Latn", "fra_Latn", "jpn_Jpan", "nld_Latn", "spa_Latn"]


def test_table_is_whole_and_its_ids_are_those_of_the_checkpoints():
    ids = {language.code: language.id for language in family_languages("nllb")}
    assert (len(ids), min(ids.values()), max(ids.values())) == (202, 256001, 256202)
    assert len(set(ids.values())) == 202
    assert (ids["ace_Arab"], ids["eng_Latn"], ids["fra_Latn"]) == (256001, 256047, 256057)
    assert (ids["pes_Arab"], ids["ron_Latn"], ids["zul_Latn"]) == (256053, 256145, 256202)
    ids = {language.code: language.id for language in family_languages("m2m100")}
    assert sorted(ids.values()) == list(range(128004, 128104))
    assert (ids["af"], ids["en"], ids["fr"], ids["zu"]) == (128004, 128022, 128028, 128103)


@pytest.mark.parametrize("known", [NLLB, M2M100], ids=["nllb", "m2m100"])
def test_codes_are_literal(known):
    for code in known:
        assert resolve(code, known) == languages.Resolution(code, is_literal=True)


@pytest.mark.parametrize(
    ("query", "nllb", "m2m100"),
    [
        ("fr", "fra_Latn", "fr"),
        ("fra", "fra_Latn", "fr"),
        ("fre", "fra_Latn", "fr"),
        ("French", "fra_Latn", "fr"),
        ("  french ", "fra_Latn", "fr"),
        ("fra_Latn", "fra_Latn", "fr"),
        ("FRA-latn", "fra_Latn", "fr"),
        ("fr-CA", "fra_Latn", "fr"),
        ("__fr__", "fra_Latn", "fr"),
        ("de_DE", "deu_Latn", "de"),
        ("ger", "deu_Latn", "de"),
        ("pt-BR", "por_Latn", "pt"),
        ("es-419", "spa_Latn", "es"),
        ("en-GB-oxendict", "eng_Latn", "en"),
        ("zh-TW", "zho_Hant", None),
        ("zh-CN", "zho_Hans", "zh"),
        ("zh-Hans", "zho_Hans", "zh"),
        ("zh-Hant-HK", "zho_Hant", None),
        ("ZHO_hans", "zho_Hans", "zh"),
        ("Chinese (Simplified)", "zho_Hans", "zh"),
        ("traditional chinese", "zho_Hant", None),
        ("zh-yue", "yue_Hant", None),
        ("Cantonese", "yue_Hant", None),
        ("zh", None, "zh"),
        ("Chinese", None, "zh"),
        ("Mandarin", None, "zh"),
        ("sr-Cyrl", "srp_Cyrl", "sr"),
        ("sr-Latn", None, None),
        ("sr-ME", None, None),
        ("sq", "als_Latn", "sq"),
        ("sqi_Latn", "als_Latn", "sq"),
        ("als_Latn", "als_Latn", "sq"),
        ("Albanian", "als_Latn", "sq"),
        ("no", "nob_Latn", "no"),
        ("nb-NO", "nob_Latn", "no"),
        ("nn", "nno_Latn", None),
        ("Norwegian", "nob_Latn", "no"),
        ("Norwegian Bokmal", "nob_Latn", "no"),
        ("ar", "arb_Arab", "ar"),
        ("Arabic", "arb_Arab", "ar"),
        ("fa", "pes_Arab", "fa"),
        ("fa-AF", "prs_Arab", None),
        ("Farsi", "pes_Arab", "fa"),
        ("ku", "kmr_Latn", None),
        ("ku-IQ", "ckb_Arab", None),
        ("az", "azj_Latn", "az"),
        ("az-IR", "azb_Arab", None),
        ("el", "ell_Grek", "el"),
        ("ky", "kir_Cyrl", None),
        ("mi", "mri_Latn", None),
        ("ug", "uig_Arab", None),
        ("gn", "grn_Latn", None),
        ("uk", "ukr_Cyrl", "uk"),
        ("Ukrainian", "ukr_Cyrl", "uk"),
        ("Polish", "pol_Latn", "pl"),
        ("iw", "heb_Hebr", "he"),
        ("ko-Kore", "kor_Hang", "ko"),
        ("cmn_Hans", "zho_Hans", "zh"),
        ("cmn_Hant", "zho_Hant", None),
        ("ekk_Latn", "est_Latn", "et"),
        ("fil_Latn", "tgl_Latn", "tl"),
        ("sat_Olck", "sat_Beng", None),
        ("apc_Arab_nort3139", "apc_Arab", None),
        ("apc_Arab_sout3123", "ajp_Arab", None),
        ("kabiye", "kbp_Latn", None),
        ("Ta'izzi-Adeni Arabic", "acq_Arab", None),
        ("ace", None, None),
        ("Acehnese", None, None),
        ("Acehnese Arabic", "ace_Arab", None),
        ("Levantine Arabic", None, None),
        ("br", None, "br"),
        ("Frisian", None, "fy"),
        ("arb_Latn", None, None),
        ("", None, None),
        ("_", None, None),
        ("x" * 100_000, None, None),
    ],
)
def test_what_a_query_stands_for(query, nllb, m2m100):
    for known, code in ((NLLB, nllb), (M2M100, m2m100)):
        if code is None:
            with pytest.raises(UsageError):
                resolve(query, known)
        else:
            assert resolve(query, known) == languages.Resolution(code, query == code)


def resolve_or_say(query, known):
    try:
        return resolve(query, known).code
    except UsageError as error:
        return str(error)


def test_every_alias_of_the_table_leads_to_its_own_language():
    for row in languages._table():
        known = NLLB if row.family == "nllb" else M2M100
        for alias in (row.code, row.name, *row.tags, *row.names):
            answer = resolve_or_say(alias, known)
            if answer != row.code:
                assert f'language "{alias}": choose ' in answer
                assert f"{row.code} (" in answer


def test_only_languages_with_two_scripts_or_a_shared_name_are_left_open():
    left_open = {
        alias
        for row in languages._table()
        for alias in (row.meaning.lang, row.name, *row.tags, *row.names)
        if "choose" in resolve_or_say(alias, NLLB)
    }
    assert left_open == {
        *("ace", "Acehnese", "Achinese", "bjn", "Banjar", "Banjarese"),
        *("kas", "ks", "Kashmiri", "knc", "kr", "kau", "Central Kanuri", "Kanuri"),
        *("taq", "tmh", "Tamasheq", "Tamashek", "Levantine Arabic"),
        *("zho", "zh", "chi", "cmn", "Chinese", "Mandarin", "Mandarin Chinese"),
    }


def test_one_script_in_the_model_settles_it():
    assert resolve("zh", ["eng_Latn", "zho_Hant"]).code == "zho_Hant"
    assert resolve("Chinese", ["eng_Latn", "zho_Hant"]).code == "zho_Hant"


def test_a_code_that_a_fine_tune_added():
    known = [*NLLB, "tyv_Cyrl", "lld_Latn_gherd", "my language"]
    assert resolve("tyv", known).code == "tyv_Cyrl"
    assert resolve("tyv-Cyrl", known).code == "tyv_Cyrl"
    assert resolve("lld", known).code == "lld_Latn_gherd"
    assert resolve("My Language", known).code == "my language"
    with pytest.raises(UsageError):
        resolve("tyv-Latn", known)


@pytest.mark.parametrize(
    ("query", "nearest"),
    [
        ("fra_Lat", "fra_Latn (French)"),
        ("Frensh", "fra_Latn (French)"),
        ("Ukranian", "ukr_Cyrl (Ukrainian)"),
        ("jp", "jpn_Jpan (Japanese)"),
        ("sr-Latn", "srp_Cyrl (Serbian)"),
        ("Chinese simplifed", "zho_Hans (Chinese, Simplified)"),
    ],
)
def test_a_typo_gets_the_nearest_three_in_one_line(query, nearest):
    with pytest.raises(UsageError) as caught:
        resolve(query, NLLB)
    assert caught.value.exit_code == ExitCode.USAGE
    text = str(caught.value)
    assert "\n" not in text
    assert nearest in text
    assert sum(f"{code} (" in text for code in NLLB) == 3


def test_a_small_model_lists_all_that_it_has():
    with pytest.raises(UsageError) as caught:
        resolve("Italian", BUNDLED)
    assert all(code in str(caught.value) for code in BUNDLED)
    with pytest.raises(UsageError, match="name them in its added_tokens.json"):
        resolve("Italian", [])


def test_hostile_queries_stay_in_one_short_line():
    for query in ("a\nb", "\x1b[31m", "\ud800", "e" * 10_000):
        with pytest.raises(UsageError) as caught:
            resolve(query, NLLB)
        text = str(caught.value)
        assert len(text) < 250
        assert text.isprintable()


@given(st.text(st.characters(exclude_categories=()), max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_query_is_answered(query):
    answer = resolve_or_say(query, NLLB)
    assert answer in NLLB or answer.startswith('language "')
    assert answer.isprintable()


def test_describe_is_in_the_order_of_ids_and_knows_added_codes():
    found = describe({"tyv_Cyrl": 9, "fra_Latn": 7, "en": 8})
    assert [(language.code, language.name, language.script, language.id) for language in found] == [
        ("fra_Latn", "French", "Latin", 7),
        ("en", "English", "Latin", 8),
        ("tyv_Cyrl", "tyv_Cyrl", "Cyrl", 9),
    ]
    assert name_of("fra_Latn") == "French"
    assert name_of("tyv_Cyrl") == "tyv_Cyrl"


def test_import_brings_nothing_heavy():
    code = "import sys, nllb_cli.languages; print('torch' in sys.modules, 'numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("frech", "model: did you mean fra_Latn (French)? it has deu_Latn (German), eng_Latn"),
        ("Englisch", "model: did you mean eng_Latn (English)? it has deu_Latn (German), eng_Latn"),
        ("Deutsch", "model: it has deu_Latn (German), eng_Latn"),
        ("Danish", "(Danish) is not in this model: it has deu_Latn (German), eng_Latn"),
    ],
)
def test_a_small_model_asks_after_a_typo_only(query, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        resolve(query, ["deu_Latn", "eng_Latn", "fra_Latn", "nld_Latn", "spa_Latn"])
