"""Figures out of pages: each server's real form, and pages that mean harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.figures import LLAMACPP, NAMES, SGLANG, TGI, TOLLWAY, VLLM, Figures, NoFigures, Page, page_url, read
from tests.fakes import engine_pages


@pytest.mark.parametrize(
    ("text", "page", "figures"),
    [
        (
            engine_pages.vllm(4, 8, 0.75, queries=9000, hits=3000),
            VLLM,
            Figures(waiting=4, running=8, kv_share=0.75, prompt_tokens=9000, prefix_hit_tokens=3000),
        ),
        (
            engine_pages.vllm(1, 2, 0.5, 10, 5) + engine_pages.vllm(3, 4, 1.0, 20, 5, engine=1),  # data parallel: an engine each
            VLLM,
            Figures(waiting=4, running=6, kv_share=0.75, prompt_tokens=30, prefix_hit_tokens=10),
        ),
        (engine_pages.vllm_first(3, 2, 0.25), VLLM, Figures(waiting=3, running=2, kv_share=0.25, prompt_tokens=1500)),
        (
            engine_pages.sglang(5, 7, 0.28),
            SGLANG,
            Figures(waiting=5, running=7, kv_share=0.28, prompt_tokens=8_128_902, prefix_hit_tokens=5000),
        ),
        (
            engine_pages.sglang(5, 7, 0.25) + engine_pages.sglang(5, 7, 0.75, rank=1),  # two ranks of one engine say the same
            SGLANG,
            Figures(waiting=5, running=7, kv_share=0.75, prompt_tokens=8_128_902, prefix_hit_tokens=5000),
        ),
        (engine_pages.llamacpp(46, 4), LLAMACPP, Figures(waiting=46, running=4, prompt_tokens=33065)),
        (engine_pages.llamacpp(0, 1, 0.125), LLAMACPP, Figures(waiting=0, running=1, kv_share=0.125, prompt_tokens=33065)),
        (engine_pages.tgi(2, 9), TGI, Figures(waiting=2, running=9)),
        ('tollway_engine_waiting{backend="a"} 1.0\ntollway_engine_waiting{backend="b"} 2.0\n', TOLLWAY, Figures(waiting=3)),
    ],
)
def test_pages(text: str, page: Page, figures: Figures) -> None:
    assert read(text.encode(), page) == figures


@pytest.mark.parametrize(
    "line",
    [
        "tgi_queue_size NaN",
        "tgi_queue_size -1",
        "tgi_queue_size +Inf",
        "tgi_queue_size",
        "tgi_queue_size{",
        "tgi_queue_size} 4",
        "tgi_queue_size_total 4",
        "# HELP tgi_queue_size 4",
        " tgi_queue_size 4",
        'tgi_queue_size{a="' + "x" * 5000 + '"} 4',
        "<html>tgi_queue_size 4",
        "",
    ],
)
def test_lines_that_say_nothing(line: str) -> None:
    with pytest.raises(NoFigures):
        read(line.encode() + b"\n", TGI)


def test_a_time_stamp_and_odd_labels_do_not_matter() -> None:
    assert read(b'tgi_queue_size{a="} 9",b="\\"x\\"", c="\xff"} 4 1700000000000\r\n', TGI) == Figures(waiting=4)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"tgi_queue_size", b"{", b"}", b'a="', b'"', b"\\", b"\n", b" ", b"1", b"e9", b"-", b"\xff", b","]), max_size=60
    )
)
def test_any_bytes_give_figures_or_none(parts: list[bytes]) -> None:
    try:
        figures = read(b"".join(parts), TGI)
    except NoFigures:
        return
    assert figures.waiting is not None and 0 <= figures.waiting <= 10**15


@pytest.mark.parametrize("line", [b'a="' * 300, b"a" * 990, b'a="' + b'\\"' * 490, b"a" * 980 + b'="', b'a="b",' * 160, b"a=" * 490])
def test_a_page_made_to_be_slow_is_not(line: bytes) -> None:
    page = b"tgi_queue_size{%s} 1\n" % line * 1100
    began = time.process_time()
    assert read(page, TGI).waiting is not None
    assert time.process_time() - began < 1.0


def test_the_page_lies_beside_the_api() -> None:
    assert page_url("http://gpu:8000/v1", VLLM) == "http://gpu:8000/metrics"
    assert page_url("http://gpu:8000/v1/", VLLM) == "http://gpu:8000/metrics"
    assert page_url("https://edge/llm/v1", VLLM) == "https://edge/llm/metrics"
    assert page_url("http://gpu:8080", LLAMACPP) == "http://gpu:8080/metrics"


def test_a_second_tollway_is_read_by_the_names_it_writes() -> None:
    assert set(TOLLWAY.names) == set(NAMES)
