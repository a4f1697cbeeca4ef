//! Expressions whose work their cost does not count: each must end at the limit of steps, or of cost, and soon after
//! an interrupt.

use std::cell::Cell;
use std::sync::Arc;

use fairgate_cel::library::authorizer::{
    AuthorizationAnswer, AuthorizationCheck, CelAuthorizer, authorizer, authorizer_type,
};
use fairgate_cel::{
    CelBindings, CelEnvironment, CelErrorKind, CelEvaluation, CelJson, CelProgram, CelType,
    CelValue, EvaluationLimits,
};

use super::environments::{NEWEST, base};

/// What is done to the value `b`, a list of 4 million empty lists, once for each pair `i`, `j` of a million.
const OF_EMPTY_LISTS: &[&str] = &[
    "b.indexOf(dyn(i)) == 5",
    "b.lastIndexOf(dyn(i)) == 5",
    "b.indexOf([i]) == 5",
    "dyn(b).isSorted()",
    "dyn(b).sum() == 1",
    "dyn(b).min() == 1",
    "dyn(b).sort() == [i]",
    "b.exists_one(x, false)",
    "b.exists_one(x, y, false)",
    "b.all(x, true) && false",
    "b == b && false",
    "[b] != [b]",
    "dyn(b) in [dyn(1), dyn(b)] && false",
    "{'a': b} != {'a': b}",
    "optional.of(b) != optional.of(b)",
    "!sets.contains([b, b], [b, b])",
    "!sets.equivalent([b], [b])",
    "!sets.intersects([b], [b])",
    "[b, b].distinct() == []",
    "b.distinct() == []",
    "b.flatten() == [i]",
    "b.flatten(3) == [i]",
    "b.reverse() == []",
    "b.slice(0, 4000000) == []",
    "b.slice(4000000, 4000001) == []",
    "[?dyn(b)] == [i]",
    "{?'a': dyn(b)} == {}",
    "(['a'] + dyn([b])).join(',') == ''",
    "([optional.of(1)] + dyn([b])).unwrapOpt() == []",
    "'%s'.format([b]) == ''",
    "string(dyn(b)) == 'a' || b.indexOf(dyn(i)) == 7",
    "b.last() == optional.none() || b.exists_one(x, false)",
];

/// The same for `n`, a list of 4 million integers.
const OF_NUMBERS: &[&str] = &[
    "n.sort() == []",
    "n.sortBy(x, x) == []",
    "n.max() == 9",
    "n.sum() == 9",
    "n.isSorted() && false",
    "(i in n.slice(0, 2000000)) && false",
    "n.map(x, x) == []",
    "n.filter(x, false) == [i]",
    "lists.range(999999) == []",
    "n.transformList(k, v, v) == []",
    "n.transformMap(k, v, v) == {}",
    "'%s'.format([n]) == ''",
];

/// The same for `text`, of 3 million characters.
const OF_TEXT: &[&str] = &[
    "size(text) == 1",
    "text < 'a'",
    "text == 'a'",
    "text == text && false",
    "text in ['b', 'a']",
    "text in {'a': 1, 'b': 2}",
    "{'a': 1, 'b': 2}[text] == 1",
    "{text: 1} == {}",
    "{text: 1, 'a': 2}[text] == 3",
    "[1].transformMap(k, v, v).size() == 5 || {text: 1} == {}",
    "text.charAt(5) == 'b'",
    "text.charAt(2999999) == 'b'",
    "int(text) == 1",
    "double(text) == 1.0",
    "duration(text) == duration('1s')",
    "timestamp(text) == timestamp(0)",
    "bool(text)",
    "'%s'.format([text]) == ''",
    "'%x'.format([text]) == ''",
    "'%s'.format([[text]]) == ''",
    "'%s'.format([{'a': text}]) == ''",
    "'a'.replace('', text) == ''",
    "text.split('') == []",
    "text.split('x') == []",
    "text.replace('x', '') == ''",
    "text.findAll('') == []",
    "text.lowerAscii() == 'a'",
    "text.substring(5) == 'a'",
    "text.trim() == 'a'",
    "strings.quote(text) == 'a'",
    "[text, text, text].join(text) == ''",
    "text + text == ''",
    "bytes(text) == b''",
    "string(bytes(text)) == ''",
    "[text, text].sort() == []",
    "[text, text].isSorted() && false",
    "[text, text].distinct() == []",
    "text.contains(text) && false",
    "text.indexOf('b') == 7",
    "isURL(text)",
    "quantity(text).isInteger()",
    "isQuantity(text)",
    "isSemver(text)",
    "isIP(text)",
    "isCIDR(text)",
    "text.matches('b$')",
    "format.dns1123Label().validate(text).hasValue() && false",
    "text.matches('(a|b)*a(a|b){400}c')",
    "text.substring(0, 2000).matches('(a|b)*a(a|b){400}c')",
    "text.substring(0, 60).matches('(a?){400}b')",
    "text.substring(0, 300).matches('((a|aa|.){30}){30}b')",
    "text.substring(0, 300).find('(x+x+)+y|(a|b)*a(a|b){200}c') == 'b'",
    "text.substring(0, 300).findAll('a').size() == 5",
    "text.substring(0, 9).matches(string(i * 1000 + j))",
    "text.substring(0, 60).matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$') && false",
];

/// The same for values that take long to make or to compare.
const OF_OTHERS: &[&str] = &[
    "url('/a?' + text).getQuery() == {}",
    "q.isLessThan(q)",
    "q == q && false",
    "q.add(q).isLessThan(q)",
    "q.asApproximateFloat() == 1.0",
    "[?dyn([q, q])] == [i]",
    "quantity('1e90000') == q && false",
    "isQuantity('1e' + string(90000 + i)) && false",
    "quantity('0.1e90000').sub(1).isLessThan(q) && false",
    "v.isLessThan(v)",
    "v != v",
    "u.getEscapedPath() == 'b'",
    "u.getQuery() == {}",
    "u != u",
    "'%.255f'.format([1e300]) == ''",
    "'%.250f%.250f%.250f'.format([1e-300, 1e-300, 1e-300]) == ''",
    "'%.1999999e'.format([1.5]) == ''",
    "'%s'.format([[1e300, 1e300]]) == ''",
    "'a'.matches('(b{100}){10}' + string(i * 1000 + j))",
    "'a'.matches('[[:word:]]{500}' + string(i * 1000 + j))",
    "'a'.matches(r'(\\pL\\pN){30}' + string(i * 1000 + j))",
    "'a'.find('[b-y]{900}' + string(i * 1000 + j)) == 'b'",
    "json.empty.indexOf(dyn(i)) == 5",
    "json.empty == json.empty && false",
    "json.object == json.object && false",
    "json.object.exists_one(k, false)",
    "json.object[string(i * 1000 + j)] == -5",
    "'%s'.format([json.object]) == ''",
    "{?'a': optional.of(json.object)} == {}",
    "timestamp(i).getHours('Europe/Berlin') == 77",
    "timestamp(i).getHours('Nowhere/' + string(j)) == 77",
    "ip('2001:db8::' + string(j)).family() == 5",
    "cidr('10.0.0.0/8').containsIP('11.0.0.' + string(j % 250))",
    "quantity(string(i) + '.5Gi').isGreaterThan(quantity('9Ei'))",
    "semver('1.2.' + string(j)).isLessThan(semver('1.0.0'))",
    "string(double(i) / 7.0) == ''",
    "duration(string(i) + 's') == duration('-1s')",
    "[1, 2, 3, i] == [j]",
    "{'a': i, 'b': j} == {}",
    "type(i) == string",
    "i * j % 7 == 9 || i + j < 0",
    "has(json.x) || json.a.b.c == i",
];

/// `list` twice, and that again and again.
fn doubled(list: &str, times: usize) -> String {
    (0..times).fold(list.to_owned(), |list, _| {
        format!("[{list}].map(v, v + v)[0]")
    })
}

/// The expression that does `body` for a million pairs of numbers, with the other names that it uses.
pub(crate) fn repeated(body: &str) -> String {
    let mut expression = format!("xs.exists(i, xs.exists(j, {body}))");
    let quantity = "quantity('1e90000').add(quantity('1'))".to_owned();
    let names = [
        ("b", doubled("[[]]", 22)),
        ("n", doubled("[3, 1, 2, 1]", 20)),
        ("q", quantity),
        ("v", "semver('1.2.3-a' + text + '.1')".to_owned()),
        ("u", "url('/' + text + '?a=' + text)".to_owned()),
    ];
    for (name, value) in names {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let used = body.split(|c| !is_name(c)).any(|word| word == name);
        if used {
            expression = format!("[{value}].exists({name}, {expression})");
        }
    }
    expression
}

/// Other shapes: what costs nothing is in the program itself, or in what a loop accumulates.
fn others() -> Vec<String> {
    let nones: Vec<_> = (0..4_000).map(|at| format!("?{at}: none")).collect();
    let ones: Vec<_> = (0..4_000).map(|at| format!("{at}: i")).collect();
    let joined = (0..70).fold(doubled("[3, 1, 2, 1]", 17), |list, _| {
        format!("({list} + [0])")
    });
    vec![
        format!("xs.exists(i, xs.exists(j, !({})))", vec!["true"; 9_000].join(" && ")),
        format!("xs.exists(i, xs.exists(j, {}))", vec!["false"; 9_000].join(" || ")),
        format!("xs.exists_one(i, xs.exists_one(j, {}))", ["true ? false : "; 200].concat() + "false"),
        format!("xs.exists(i, {{{}, {}}} == {{}})", ones.join(", "), nones.join(", ")),
        format!("[{joined}].exists(n, xs.exists(i, xs.exists(j, (n + [i]).size() < 0)))"),
        format!("[{}].exists(n, xs.exists(i, xs.exists(j, [n].exists_one(x, false))))", doubled("[[]]", 22)),
        "xs.exists(i, {}[text] == 1) || xs.all(j, xs.all(k, {}[text] == 1))".to_owned(),
        "xs.exists(i, xs.exists_one(j, xs.exists_one(k, xs.exists_one(l, false))))".to_owned(),
        "xs.all(i, xs.all(j, xs.all(k, xs.all(l, true))))".to_owned(),
        "xs.map(i, xs.map(j, xs.map(k, text))).size() == 0".to_owned(),
        "xs.map(i, xs.map(j, text + text)).size() == 0".to_owned(),
        "xs.map(i, xs.map(j, quantity('1e99999').add(quantity('1')))).size() == 0".to_owned(),
        "xs.map(i, xs.map(j, quantity('1').sub(quantity('1e99999')))).size() == 0".to_owned(),
        "xs.transformMap(i, v, xs.transformMap(j, w, text)).size() == 0".to_owned(),
        "xs.transformMapEntry(i, v, {text: 1}).size() == 0 || xs.exists(i, xs.exists(j, {text: 1} == {}))".to_owned(),
        "xs.exists(i, xs.transformMapEntry(j, v, {text: 1}).size() == 0)".to_owned(),
    ]
}

pub(crate) fn all() -> Vec<String> {
    let bodies = [OF_EMPTY_LISTS, OF_NUMBERS, OF_TEXT, OF_OTHERS];
    let bodies = bodies.into_iter().flatten();
    bodies.map(|body| repeated(body)).chain(others()).collect()
}

pub(crate) struct World {
    pub(crate) environment: CelEnvironment,
    text: String,
    /// Characters that no printer shows as they are.
    wide: String,
    json: String,
}

struct NoOpinion;

impl CelAuthorizer for NoOpinion {
    fn authorize(&self, _: &AuthorizationCheck) -> AuthorizationAnswer {
        AuthorizationAnswer::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let environment = base(NEWEST)
            .homogeneous_literals(false)
            .variable("xs", CelType::list(CelType::Int))
            .variable("text", CelType::String)
            .variable("none", CelType::optional(CelType::Int))
            .variable("json", CelType::Dyn)
            .variable("wide", CelType::String)
            .variable("authorizer", authorizer_type())
            .build();
        let members: Vec<_> = (0..100_000).map(|at| format!("\"{at}\":{at}")).collect();
        let empty = vec!["[]"; 1_000_000].join(",");
        let item = r#"{"name":"web-1","count":7,"memory":"10Mi"}"#;
        let items = vec![item; 40_000].join(",");
        let json = format!(
            r#"{{"empty":[{empty}],"items":[{items}],"object":{{{}}},"a":{{"b":{{"c":-1}}}}}}"#,
            members.join(",")
        );
        Self {
            environment,
            text: "a".repeat(3_000_000),
            wide: "\u{200b}".repeat(1_000_000),
            json,
        }
    }

    /// Calls `with` for each of the expressions.
    pub(crate) fn each(
        &self,
        sources: Vec<String>,
        mut with: impl FnMut(&str, &CelProgram, &CelBindings<'_>),
    ) {
        let json: CelJson<'_> = serde_json::from_str(&self.json).unwrap();
        let xs = CelValue::list((0..1_000).map(CelValue::Int).collect()).unwrap();
        let mut programs = Vec::new();
        let mut wrong = Vec::new();
        for source in sources {
            match self.environment.compile(&source) {
                Ok(program) => programs.push((source, program)),
                Err(error) => {
                    let error = error.to_string();
                    let tail = source.get(source.len().saturating_sub(90)..);
                    wrong.push(format!(
                        "{}: {tail:?}",
                        error.lines().next().unwrap_or_default()
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (source, program) in &programs {
            let bindings = self
                .environment
                .bindings()
                .with("xs", xs.clone())
                .with("text", CelValue::from(&*self.text))
                .with("none", CelValue::Optional(None))
                .with("json", CelValue::json(&json))
                .with("wide", CelValue::from(&*self.wide))
                .with("authorizer", authorizer(Arc::new(NoOpinion)));
            let name: String = source.chars().rev().take(110).collect();
            let name: String = name.chars().rev().collect();
            with(&name, program, &bindings);
        }
    }
}

/// Why an evaluation ended, or that it did not have to.
pub(crate) fn end(evaluation: &CelEvaluation<'_>) -> Option<CelErrorKind> {
    evaluation
        .result
        .as_ref()
        .err()
        .map(fairgate_cel::CelError::kind)
}

#[test]
fn what_cost_does_not_count_ends_at_the_limit_of_work() {
    let world = World::new();
    let mut wrong = Vec::new();
    world.each(all(), |name, program, bindings| {
        let limits = EvaluationLimits {
            work: 100_000,
            ..EvaluationLimits::default()
        };
        let evaluation = program.evaluate_within(bindings, &limits);
        assert!(evaluation.work <= 100_000, "{name}");
        let end = end(&evaluation);
        if !matches!(end, Some(CelErrorKind::OwnLimit | CelErrorKind::CostLimit)) {
            wrong.push(format!(
                "{name}: {end:?} cost {} work {}",
                evaluation.cost, evaluation.work
            ));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What policies do, here with 40 000 items of a document of 1.7 MB.
const ORDINARY: &[&str] = &[
    "json.items.all(x, x.count >= 0 && x.count < 100 && x.name != '')",
    "!json.items.exists(x, x.name == 'db' || x.count == -1 || x.count > 1000)",
    "json.items.all(x, has(x.count) ? x.count >= 0 : true)",
    "json.items.all(x, !has(x.other) || x.other == 1)",
    "json.items.filter(x, x.count > 5).size() > 0",
    "json.items.map(x, x.count).max() == 7",
    "json.items.exists_one(x, x.name == 'db') == false",
    "json.items.all(x, x.name.startsWith('web') && x.name.size() < 60)",
    "json.items.all(x, x.name in ['web-1', 'web-2', 'web-3'])",
    "json.items.all(x, x.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
    "json.items.all(x, !x.name.contains('_') && x.name.lowerAscii() == x.name)",
    "json.items.all(x, quantity(x.memory).isLessThan(quantity('1Gi')))",
    "json.items.all(i, x, i < 100000 && x.count > 0)",
    "json.items.all(x, x.?count.orValue(0) > 0)",
    "json.items.map(x, x.name).join(',').size() > 0",
    "json.items.map(x, '%s: %d'.format([x.name, x.count])).size() > 0",
    "json.items == json.items",
    "json.a == json.a && json.a != json.object",
    "json.object.all(k, json.object[k] >= 0)",
    "json.items.indexOf({'name': 'db'}) == -1 || true",
    "sets.contains(json.items[0].name.split('-'), ['web'])",
    "text == text && !text.contains('b') && size(text) == 3000000",
];

#[test]
fn ordinary_expressions_on_large_objects_end_at_no_limit_but_that_of_cost() {
    let world = World::new();
    let sources = ORDINARY.iter().map(|&source| source.to_owned()).collect();
    world.each(sources, |name, program, bindings| {
        let evaluation = program.evaluate(bindings);
        let (cost, work) = (evaluation.cost, evaluation.work);
        println!("{cost:8} cost {work:8} steps {name}");
        match &evaluation.result {
            Ok(value) => assert_eq!(value, &CelValue::Bool(true), "{name}"),
            Err(error) => assert_eq!(error.kind(), CelErrorKind::CostLimit, "{name}: {error}"),
        }
    });
}

#[test]
fn an_interrupt_ends_all_work() {
    let world = World::new();
    world.each(all(), |name, program, bindings| {
        let asked = Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let limits = EvaluationLimits {
            cost: u64::MAX,
            work: 10_000_000,
            interrupted: Some(&interrupted),
        };
        let evaluation = program.evaluate_within(bindings, &limits);
        let end = end(&evaluation);
        match asked.get() {
            3 => assert_eq!(end, Some(CelErrorKind::Interrupted), "{name}"),
            // One call would take more than the limit, and does not begin.
            0..3 => assert!(
                matches!(end, Some(CelErrorKind::OwnLimit | CelErrorKind::CostLimit)),
                "{name}: {end:?}"
            ),
            _ => panic!("{name}: asked again after the interrupt"),
        }
    });
}
