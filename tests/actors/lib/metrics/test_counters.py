"""What actors count: values survive their actor, are bounded, and come out as Prometheus' library reads them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors.lib.kube.errors import ConflictError, UnreachableError
from actors.lib.metrics import counters
from actors.lib.metrics.counters import BUCKETS, Counter, Gauge, Histogram
from actors.lib.metrics.descriptions import DESCRIPTIONS, FEW
from actors.lib.metrics.exposition import metrics_text
from config.status import Status


def test_a_counter_adds_up_by_its_labels() -> None:
    counter = Counter("netlink_ops_total")
    counter.count("create_link", "ok")
    counter.count("create_link", "ok")
    counter.count("create_link", "refused")
    assert counter.values() == {("create_link", "ok"): 2, ("create_link", "refused"): 1}


def test_a_counter_without_labels_is_there_before_it_counts() -> None:
    assert Counter("netlink_overruns_total").values() == {(): 0}


def test_wrong_labels_are_a_bug() -> None:
    with pytest.raises(ValueError, match="labels"):
        Counter("netlink_ops_total").count("create_link")


def test_beyond_its_limit_nothing_is_added() -> None:
    counter = Counter("netlink_ops_total")
    for number in range(FEW + 5):
        counter.count(f"op{number}", "ok")
    counter.count("op0", "ok")
    assert len(counter.values()) == FEW
    assert counter.values()["op0", "ok"] == 2


def test_threads_lose_no_count() -> None:
    counter = Counter("frr_writes_total")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: counter.count("accepted"), range(4000)))
    assert counter.values() == {("accepted",): 4000}


def test_a_gauge_has_the_last_value() -> None:
    gauge = Gauge("last_apply_timestamp_seconds")
    gauge.set(1.0, "frr")
    gauge.set(2.0, "frr")
    assert gauge.values() == {("frr",): 2.0}


def test_a_duration_is_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram("reconcile_duration_seconds")
    for seconds in (BUCKETS[0], BUCKETS[0] + 0.001, BUCKETS[-1] + 1):
        histogram.observe(seconds, "frr")
    found = histogram.values()["frr",]
    assert (found.counts[0], found.counts[1], found.counts[-1], sum(found.counts)) == (1, 1, 1, 3)


def test_a_histogram_comes_out_cumulative(monkeypatch: pytest.MonkeyPatch) -> None:
    histogram = Histogram("reconcile_duration_seconds")
    for seconds in (0.01, 0.2, 1000.0):
        histogram.observe(seconds, "kernel")
    monkeypatch.setattr("actors.lib.metrics.exposition.HISTOGRAMS", (histogram,))
    text = metrics_text(Status())
    samples = {
        (one.name, one.labels.get("le", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name.startswith("openperouter_reconcile_duration_seconds")
    }
    prefix = "openperouter_reconcile_duration_seconds"
    assert samples[f"{prefix}_bucket", "0.05"] == 1
    assert samples[f"{prefix}_bucket", "0.25"] == 2
    assert samples[f"{prefix}_bucket", "+Inf"] == samples[f"{prefix}_count", ""] == 3
    assert samples[f"{prefix}_sum", ""] == pytest.approx(1000.21)


def test_each_is_exported() -> None:
    """A counter that the exposition does not list would count in vain."""
    made = {one.description.name for one in vars(counters).values() if isinstance(one, Counter | Gauge | Histogram)}
    listed = {one.description.name for one in (*counters.COUNTERS, *counters.HISTOGRAMS)}
    assert made == listed
    assert listed <= DESCRIPTIONS.keys()


def test_errors_of_the_api_have_a_category_from_a_closed_set() -> None:
    assert ConflictError("name of an object").category == "conflict"
    assert UnreachableError("address of a server").category == "unreachable"
