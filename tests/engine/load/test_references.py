"""`${{ … }}`: variables put in place, the others judged by name, everything else refused."""

from __future__ import annotations

import pytest

from runbooks.engine.model.diagnostic import ExitCode, RunbookError
from tests.engine.load.support import HEAD, STEP, fault, faults, load, said, step_with


def with_vars(variables: str, do: str, **given: str):
    return load(step_with(do=do).replace("steps:", f"vars: {variables}\nsteps:"), **given)


def argv(variables: str, token: str, **given: str) -> tuple[str, ...]:
    do = f"{{command: {{argv: [x, {token}]}}}}"
    step = with_vars(variables, do, **given).steps["a"]
    assert step.do is not None
    return step.do.args["argv"][1:]


def test_a_whole_value_keeps_its_type() -> None:
    text = step_with('requires: [{row_count: {path: "data:x", eq: "${{ vars.n }}"}}]')
    step = load(text.replace("steps:", "vars: {n: 37_312}\nsteps:")).steps["a"]
    assert step.requires[0].wants[0].value == 37312


def test_a_whole_list_is_a_list() -> None:
    step = with_vars("{words: [a, b]}", '{command: {argv: "${{ vars.words }}"}}').steps["a"]
    assert step.do is not None and step.do.args["argv"] == ("a", "b")


@pytest.mark.parametrize(
    ("variables", "token", "value"),
    [
        ("{n: 37_312}", '"--n=${{ vars.n }}"', "--n=37312"),
        ("{b: true, f: 0.5}", '"${{vars.b}}/${{ vars.f }}"', "true/0.5"),
        ("{a: x, b: '${{ vars.a }}y', c: '${{ vars.b }}z'}", '"${{ vars.c }}"', "xyz"),
        ("{c: '${{ vars.b }}z', b: '${{ vars.a }}y', a: x}", '"${{ vars.c }}"', "xyz"),
        ("{a: '${HOME} $HOME {{ not ours }} {{.Names}}'}", '"${{ vars.a }}"', "${HOME} $HOME {{ not ours }} {{.Names}}"),
        ("{a: '${{ root.data }}/m'}", '"${{ vars.a }}/n"', "${{ root.data }}/m/n"),
    ],
)  # fmt: skip
def test_embedded_in_text(variables: str, token: str, value: str) -> None:
    assert argv(variables, token) == (value,)


@pytest.mark.parametrize(
    ("variables", "token", "words"),
    [
        ("{samples: 1}", '"${{ vars.sample }}"', ["'sample'", "did you mean 'samples'?"]),
        ("{samples: 1}", '"${{ var.samples }}"', ["'var'", "did you mean 'vars'?"]),
        ("{x: a}", '"${{ vars.x | upper }}"', ["no reference", "names only", "${{ vars.x }}"]),
        ("{x: a}", '"${{ vars.x.y }}"', ["no reference"]),
        ("{x: a}", '"${{ x }}"', ["no reference"]),
        ("{x: a}", '"${{ vars.x"', ["not closed"]),
        ("{x: a}", '"a ${{ }} b"', ["no reference"]),
        ("{x: a}", '"{{ vars.x }}"', ["${{ vars.x }}"]),
        ("{x: a}", '"a {{x}} b"', ["${{ vars.x }}"]),
        ("{x: [a]}", '"a ${{ vars.x }}"', ["'x' is a list"]),
        ("{x: a}", '"${{ estimate.byte }}"', ["'byte'", "did you mean 'bytes'?"]),
        ("{x: a}", '"${{ estimate.bytes }}"', ["comparisons of sizes only"]),
        ("{x: a}", '"${{ root.dat }}"', ["root 'dat'", "llm-two", "did you mean 'data'?"]),
        ("{x: a}", '"${{ secrets.t }}"', ["unknown secret 't'"]),
    ],
)
def test_faults_of_references(variables: str, token: str, words: list[str]) -> None:
    do = f"{{command: {{argv: [x, {token}]}}}}"
    text = step_with(do=do).replace("steps:", f"vars: {variables}\nsteps:")
    item = fault(text)
    told = f"{item.message} {item.hint}"
    assert all(word in told for word in words), told
    line, column = said(item)
    assert line == 8
    assert text.splitlines()[7][column - 1 :].startswith(("$", "{", '"'))


def test_columns_point_into_the_text() -> None:
    text = step_with(do='{command: {argv: ["ключ ${{ vars.x }}"]}}')
    assert said(fault(text)) == (7, text.splitlines()[6].index("${{") + 1)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ("{a: '${{ vars.b }}', b: '${{ vars.a }}'}", "a → b → a"),
        ("{a: '${{ vars.a }}'}", "a → a"),
        ("{a: ok, b: ['${{ vars.c }}'], c: 'x${{ vars.b }}'}", "b → c → b"),
        ("{a: '${{ secrets.t }}'}", "may not use secrets"),
        ("{a: '${{ estimate.bytes }}'}", "may not use estimate"),
        ("{l: [x], a: ['${{ vars.l }}']}", "lists hold single values"),
        ("{a: {b: c}}", "a is a mapping"),
        ("{a: }", "has no value"),
        ("{a b: c}", "is no name"),
    ],
)
def test_faults_of_variables(variables: str, words: str) -> None:
    text = step_with(do='{command: {argv: [x, "${{ vars.a }}"]}}')
    if "a b" in variables:
        text = step_with()
    found = faults(text.replace("steps:", f"secrets: {{t: {{env: T}}}}\nvars: {variables}\nsteps:"))
    assert len(found) == 1, found
    assert words in found[0].message
    assert said(found[0])[0] == 4


def test_a_thousand_variables_in_a_row_are_no_recursion() -> None:
    chain = "".join(f"  v{i}: '${{{{ vars.v{i + 1} }}}}'\n" for i in range(5000))
    text = f"{HEAD}vars:\n{chain}  v5000: end\nsteps:\n{STEP}"
    assert load(text).variables["v0"] == "end"


def test_variables_that_double_are_stopped() -> None:
    doubling = "".join(
        f"  v{i}: '${{{{ vars.v{i + 1} }}}}${{{{ vars.v{i + 1} }}}}'\n" for i in range(60)
    )
    item = faults(f"{HEAD}vars:\n{doubling}  v60: bang\nsteps:\n{STEP}")[0]
    assert "grow beyond" in item.message


SECRET = f"{HEAD}secrets: {{token: {{env: TOKEN}}}}\nsteps:\n"


def secret_step(do: str, more: str = "") -> str:
    return SECRET + STEP.replace('{command: {argv: [touch, "data:x"]}}', do) + more


def test_secrets_stand_in_env_and_stdin() -> None:
    step = load(
        secret_step(
            '{command: {argv: [x], env: {T: "${{ secrets.token }}"}, stdin: "a ${{ secrets.token }}"}}'
        )
    ).steps["a"]
    assert step.do is not None
    assert step.do.args["env"] == {"T": "${{ secrets.token }}"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (secret_step('{command: {argv: [curl, -H, "X: ${{ secrets.token }}"]}}'), "argv"),
        (secret_step('{command: {argv: [x], cwd: "/${{ secrets.token }}"}}'), "cwd"),
        (secret_step("{command: {argv: [x]}}", '    about: "${{ secrets.token }}"\n'), "about"),
        (secret_step("{command: {argv: [x]}}", '    requires: [{text_of: {path: /x, eq: "${{ secrets.token }}"}}]\n'), "requires"),
        (secret_step("{command: {argv: [x]}}", '    undo: {command: {argv: ["${{ secrets.token }}"]}}\n'), "argv"),
    ],
)  # fmt: skip
def test_secrets_stand_nowhere_else(text: str, where: str) -> None:
    assert f"secret in {where}" in fault(text).message


def test_a_secret_outside_steps_is_refused() -> None:
    assert "steps only" in fault(SECRET.replace("small", "${{ secrets.token }}") + STEP).message


def test_estimate_bytes_needs_an_estimate_of_bytes() -> None:
    line = 'requires: [{disk_free: {root: data, ge: "${{ estimate.bytes }}"}}]'
    assert "no estimate of bytes" in fault(step_with(line)).message
    assert "no estimate of bytes" in fault(step_with(line, "estimate: {time: 1h}")).message
    step = load(step_with(line, "estimate: {writes: {data: 1 GiB}}")).steps["a"]
    assert step.requires[0].wants[0].value == "${{ estimate.bytes }}"


def test_roots_are_no_comparisons() -> None:
    item = fault(step_with('requires: [{text_of: {path: /x, eq: "${{ root.data }}"}}]'))
    assert "arguments" in item.message


@pytest.mark.parametrize(
    ("declared", "given", "value"),
    [
        ("37_312", "5", 5),
        ("37_312", "87_800_000", 87_800_000),
        ("1.5", "2", 2),
        ("true", "false", False),
        ("text", "5", "5"),
        ("text", "", ""),
        ("text", "a=b", "a=b"),
    ],
)
def test_overrides_take_the_declared_type(declared: str, given: str, value: object) -> None:
    text = step_with().replace("steps:", f"vars: {{rows: {declared}}}\nsteps:")
    assert load(text, rows=given).variables["rows"] == value


@pytest.mark.parametrize(
    ("declared", "name", "given", "words"),
    [
        ("37_312", "rows", "false", "'false' is not a whole number"),
        ("37_312", "rows", "1.5", "not a whole number"),
        ("37_312", "rows", "", "not a whole number"),
        ("true", "rows", "yes", "'yes' is not a boolean"),
        ("[a]", "rows", "b", "not a list"),
        ("text", "row", "b", "no variable 'row'"),
        ("text", "rows", "${{ secrets.t }}", "holds no ${{"),
    ],
)
def test_overrides_of_another_type_are_usage_errors(
    declared: str, name: str, given: str, words: str
) -> None:
    text = step_with().replace("steps:", f"vars: {{rows: {declared}}}\nsteps:")
    with pytest.raises(RunbookError, match=words.replace("$", r"\$").replace("{", r"\{")) as caught:
        load(text, **{name: given})
    assert caught.value.code is ExitCode.USAGE
    assert f"-v {name}={given}" == caught.value.diagnostics[0].where
