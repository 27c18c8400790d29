"""The page of metrics of a picker that has lived through a bit of everything: what the docs list, and what the dashboard asks for."""
import concurrent.futures, json, re

import promql_parser as promql
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stand import ROOT, free_port, until
from test_flow import LONG, OBJECTIVE, hold, waits

P = "llm_d_epp_"
CHAT = {"model": "m", "prompt": "An endpoint picker picks endpoints. " * 200, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}}

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: approx-prefix-cache-producer}
- type: precise-prefix-cache-producer
  parameters: {indexerConfig: {kvBlockIndexConfig: {enableMetrics: true}}, kvEventsConfig: {podDiscoveryConfig: {socketPort: KV_PORT}}}
- {type: prefix-cache-scorer}
- {type: prefix-cache-scorer, name: precise, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: active-request-scorer}
- {type: program-aware-fairness}
- {type: endpoint-notification-source}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}, {pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: precise}, {pluginRef: active-request-scorer}]}]
objectives: {high: 10, batch: -1}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 20s
  enableEviction: true
  maxRequests: 100
  maxBytes: 1Gi
  defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}
"""


@pytest.fixture
def lived(start):
    """A picker whose page has a sample of everything that the dashboard asks for."""
    s = start(mode="duplex", engines=1, config=CONFIG.replace("KV_PORT", str(free_port())), flags=("--enable-grpc-stream-metrics", "--refresh-prometheus-metrics-interval=100ms"))
    for _ in range(3):
        assert s.post(CHAT)[0] == 200
    assert s.post(b"{")[0] == 400
    held = hold(s, LONG, **{OBJECTIVE: "batch"})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        # Ends the other one, which has a lower priority, and takes its place.
        assert pool.submit(s.post, CHAT, headers={OBJECTIVE: "high"}).result(20)[0] == 200
    held[0].close()
    waits(s, 0)
    nobody = free_port()
    s.write_endpoints([*s.engine_ports, nobody])
    until(lambda: s.metric(P + "datalayer_poll_errors_total") and s.metric(P + "average_queue_size") is not None, what="a failed scrape and one that did not fail")
    return s


def families(page):
    """{name as queries write it: label names}."""
    out = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            out.setdefault(sample.name, set()).update(sample.labels)
    return out


def queries():
    dashboard = json.loads((ROOT / "docs/grafana/epp.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"], ""


def wrong(expr, legend, shown):
    """What a query asks for that is not on the page."""
    found = []
    asked = promql.parse(expr.replace("$__rate_interval", "5m"))
    names, grouped = set(), set()

    def labels(selector):
        names.add(selector.name)
        known = shown.get(selector.name)
        if known is None:
            found.append(f"no family {selector.name}")
        for matcher in selector.matchers.matchers:
            if known is not None and matcher.name not in known | {"job", "instance"}:
                found.append(f"no label {matcher.name} on {selector.name}")

    def visit(node):
        match node:
            case promql.VectorSelector():
                labels(node)
            case promql.MatrixSelector():
                labels(node.vector_selector)
            case promql.AggregateExpr():
                if node.modifier:
                    grouped.update(node.modifier.labels)
                visit(node.expr)
            case promql.Call():
                for arg in node.args:
                    visit(arg)
            case promql.BinaryExpr():
                visit(node.lhs), visit(node.rhs)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                visit(node.expr)
    visit(asked)
    found += [f"no label {label} on {name}" for label in grouped - {"job", "instance"} for name in names if label not in shown.get(name, {label})]
    found += [f"the legend's {label} is not grouped by" for label in set(re.findall(r"{{(\w+)}}", legend)) - grouped]
    return found if names else [f"no family at all in {expr}"]


def test_every_query_of_the_dashboard_finds_something(lived):
    shown = families(lived.get("/metrics")[1])
    bad = [f"{title}: {what}" for title, expr, legend in queries() for what in wrong(expr, legend, shown)]
    assert not bad, "\n".join(bad)


def test_the_check_of_queries_sees_what_is_wrong():
    shown = {"a_total": {"x"}, "b_bucket": {"le", "y"}}
    for expr, legend in [("sum(c)", ""), ("sum by (y) (rate(a_total[5m]))", ""), ('a_total{y="1"}', ""), ("sum by (x) (a_total) / sum(c)", ""), ("sum(a_total)", "{{x}}"), ("1", "")]:
        assert wrong(expr, legend, shown), expr
    assert not wrong('histogram_quantile(0.5, sum by (le, y) (rate(b_bucket{y="1"}[$__rate_interval])))', "{{y}}", shown)
    with pytest.raises(ValueError):
        wrong("sum(a_total", "", shown)


def test_all_that_is_shown_is_in_the_docs(lived):
    documented = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs/metrics.md").read_text()))
    for page in (lived.get("/metrics")[1], lived.get("/metrics", accept="application/openmetrics-text; version=1.0.0")[1]):
        for line in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M):
            name, kind = line
            assert name in documented or kind == "counter" and f"{name}_total" in documented, name
