"""The page of a derivation: both sides of each rule as pictures whose boxes do not overlap."""

import itertools

import neoflow as nf
from neoflow.graph import canonicalize, make_graph
from neoflow.report.derivation import derivation_page, picture, placed
from neoflow.superopt import Cost, Limits, Search, standard

RULES = standard()


def test_pictures_have_a_box_for_each_part_side_by_side():
    for rule in RULES.rules:
        root, width = placed(rule.target)
        rows: dict[float, list[tuple[float, float]]] = {}
        stack = [root]
        while stack:
            box = stack.pop()
            rows.setdefault(box.y, []).append((box.x - box.width / 2, box.x + box.width / 2))
            stack += box.reads
        for spans in map(sorted, rows.values()):
            assert spans[0][0] >= -0.01 and spans[-1][1] <= width + 0.01
            assert all(a[1] <= b[0] + 0.01 for a, b in itertools.pairwise(spans))
    drawn = picture(RULES.by_name["matmul_of_add"].target)
    assert drawn.count("<rect") == 7 and drawn.count("<path") == 6 and ">matmul<" in drawn


def test_every_step_is_on_the_page():
    x, y, z = (nf.placeholder((4, 4), name=n) for n in "xyz")
    graph = canonicalize(make_graph([nf.transpose(nf.transpose(nf.tanh(x @ y + x @ z)))], [x, y, z]))
    found = Search(RULES.rules, lambda g: Cost(float(len(g.nodes))), Limits()).run(graph)
    assert found.steps
    page = derivation_page("a <model>", [found])
    assert "a &lt;model&gt;" in page and page.count("<figure>") == 2 * len(found.steps)
    assert all(f"<b>{n}. {step.rewrite.name}</b>" in page for n, step in enumerate(found.steps, 1))
