//! What an expression reads is known without evaluating it: whatever changes its result is among it.

use fairgate_cel::{CelEnvironment, CelJson, CelReads, CelStep, CelType, CelValue};
use fairgate_core::random::Random;
use serde_json::{Value, json};

use crate::environments::{NEWEST, base};
use crate::values::json_of;

/// The places that are changed.
const PLACES: [&[&str]; 13] = [
    &["a"],
    &["a", "b"],
    &["a", "c"],
    &["a", "c", "*", "d"],
    &["a", "c", "*", "e"],
    &["a", "c", "*", "f", "g"],
    &["a", "m"],
    &["a", "m", "k"],
    &["a", "m", "k.l"],
    &["a", "n"],
    &["a", "o", "*", "*", "d"],
    &["a", "s"],
    &["z"],
];

fn object() -> Value {
    json!({
        "a": {
            "b": 1,
            "c": [{"d": 1, "e": "s", "f": {"g": [1]}}, {"d": 2, "e": "t", "f": {"g": []}}],
            "m": {"k": "v", "k.l": "w", "o": ""},
            "n": [1, 2],
            "o": [[{"d": 1}], [{"d": 2}, {"d": 3}]],
            "s": "text",
        },
        "z": 5,
    })
}

/// That of policies, with lists of different types, so that more expressions compile.
fn environment() -> CelEnvironment {
    base(NEWEST)
        .homogeneous_literals(false)
        .variable("x", CelType::Dyn)
        .build()
}

/// The object with something else at a place: nothing, or another value.
fn changed(object: &Value, place: &[&str], to: Option<&Value>) -> Value {
    let mut object = object.clone();
    change(&mut object, place, to);
    object
}

fn change(object: &mut Value, place: &[&str], to: Option<&Value>) {
    let (name, rest) = place.split_first().unwrap();
    match object {
        Value::Array(elements) if *name == "*" => {
            for element in elements {
                change(element, rest, to);
            }
        }
        Value::Object(members) if rest.is_empty() => {
            match to {
                Some(value) => members.insert((*name).to_owned(), value.clone()),
                None => members.remove(*name),
            };
        }
        Value::Object(members) => {
            if let Some(member) = members.get_mut(*name) {
                change(member, rest, to);
            }
        }
        _ => {}
    }
}

/// Draws expressions about `x`. Most compile.
struct Drawing {
    random: Random,
    /// How many variables of comprehensions there are around.
    locals: usize,
    left: u32,
}

impl Drawing {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.within(0..bound)
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).unwrap()]
    }

    fn local(&mut self) -> Option<String> {
        let at = self.below(self.locals as u64 + 1);
        (usize::try_from(at).unwrap() < self.locals).then(|| format!("v{at}"))
    }

    /// With one more variable around, `v` and its number.
    fn within(&mut self, draw: impl FnOnce(&mut Self) -> String) -> (String, String) {
        let name = format!("v{}", self.locals);
        self.locals += 1;
        let drawn = draw(self);
        self.locals -= 1;
        (name, drawn)
    }

    fn path(&mut self) -> String {
        let mut path = match self.local() {
            Some(local) if self.below(3) > 0 => local,
            _ => "x".to_owned(),
        };
        let steps = [
            ".a",
            ".a",
            ".a.b",
            ".a.c",
            ".a.c[0]",
            ".a.c[1].d",
            ".a.m",
            ".a.m.k",
            ".a.m['k.l']",
            ".a['b']",
            ".a.n",
            ".a.o",
            ".a.s",
            ".z",
            ".d",
            ".e",
            ".f",
            ".f.g",
            "[0]",
            ".k",
            ".?a.?b",
            ".?a",
            "[?'a']",
            ".a.o[0]",
            "['a']",
            ".b",
            ".c",
            ".m",
            ".n",
        ];
        for _ in 0..=self.below(2) {
            path.push_str(self.one(&steps));
        }
        path
    }

    fn value(&mut self) -> String {
        if self.left == 0 {
            return self.path();
        }
        self.left -= 1;
        match self.below(18) {
            0..=5 => self.path(),
            6 => self.local().unwrap_or_else(|| "1".to_owned()),
            7 => self
                .one(&["1", "2", "'s'", "'k'", "'a'", "'v'", "[]", "{}", "x"])
                .to_owned(),
            8 => format!("({} ? {} : {})", self.test(), self.value(), self.value()),
            9 => format!("[{}, {}]", self.value(), self.value()),
            10 => format!("{{'k': {}, 'd': {}}}", self.value(), self.value()),
            11 => format!("dyn({} + {})", self.value(), self.value()),
            12 => format!("{}.orValue({})", self.path(), self.value()),
            13 => format!("{}[{}]", self.path(), self.value()),
            14 => format!("size({})", self.value()),
            15 => format!("optional.of({}).value()", self.value()),
            16 => format!(
                "optional.ofNonZeroValue({}).orValue({})",
                self.value(),
                self.value()
            ),
            _ => self.list(),
        }
    }

    fn list(&mut self) -> String {
        let of = self.value();
        let choice = self.below(8);
        let (name, inner) = self.within(|with| match choice {
            0 | 1 => with.value(),
            _ => with.test(),
        });
        match choice {
            0 => format!("{of}.map({name}, {inner})"),
            1..=3 => format!("{of}.filter({name}, {inner})"),
            4 => format!("{of}.map({name}, {inner}, {name})"),
            5 => format!("{of}.transformList(i, {name}, {inner})"),
            6 => format!("{of}.transformMap(i, {name}, {inner})"),
            _ => format!("{of}.optMap({name}, {inner}).orValue(0)"),
        }
    }

    fn test(&mut self) -> String {
        if self.left == 0 {
            return "true".to_owned();
        }
        self.left -= 1;
        match self.below(14) {
            0..=2 => format!("{} == {}", self.value(), self.value()),
            3 => format!(
                "has({}.{})",
                self.path(),
                self.one(&["a", "b", "c", "d", "k", "f"])
            ),
            4 => format!("({} && {})", self.test(), self.test()),
            5 => format!("({} || {})", self.test(), self.test()),
            6 => format!("{} in {}", self.value(), self.value()),
            7 => format!("!({})", self.test()),
            8 => format!("{}.hasValue()", self.path()),
            9 => format!("{}.startsWith('s')", self.value()),
            other => {
                let of = self.value();
                let (name, inner) = self.within(Self::test);
                let call = self.one(&["all", "exists", "exists_one"]);
                match other {
                    10 => format!("{of}.{call}(i, {name}, {inner})"),
                    _ => format!("{of}.{call}({name}, {inner})"),
                }
            }
        }
    }
}

/// The result as text, of an error its message, and what it cost.
fn result(environment: &CelEnvironment, expression: &str, object: &Value) -> String {
    let program = environment.compile(expression).unwrap();
    let text = object.to_string();
    let document: CelJson<'_> = serde_json::from_str(&text).unwrap();
    let bindings = environment.bindings().with("x", CelValue::json(&document));
    let evaluation = program.evaluate(&bindings);
    let result = match evaluation.result {
        Ok(value) => json_of(&value).to_string(),
        Err(error) => error.to_string(),
    };
    format!("{result} for {}", evaluation.cost)
}

fn reads(environment: &CelEnvironment, expression: &str) -> Option<CelReads> {
    let program = environment.compile(expression).ok()?;
    let (mut reads, value) = program.reads("variables", &|_| unreachable!());
    reads.add_whole(value);
    Some(reads)
}

fn may_read(reads: &CelReads, place: &[&str]) -> bool {
    reads.may_read(&CelStep::path(&[&["x"], place].concat()))
}

#[test]
fn what_changes_a_result_is_read() {
    let environment = environment();
    let object = object();
    let values = [
        json!(7),
        json!("other"),
        json!([]),
        json!({"d": 1}),
        json!([1, 2, 3]),
        json!(null),
    ];
    let mut drawing = Drawing {
        random: Random::seeded(20_261_127),
        locals: 0,
        left: 0,
    };
    let (mut compiled, mut changes, mut unread) = (0, 0, 0);
    for _ in 0..12_000 {
        drawing.left = 8;
        let expression = match drawing.below(2) {
            0 => drawing.test(),
            _ => drawing.value(),
        };
        let Some(reads) = reads(&environment, &expression) else {
            continue;
        };
        compiled += 1;
        let before = result(&environment, &expression, &object);
        for place in PLACES {
            if may_read(&reads, place) {
                continue;
            }
            unread += 1;
            let other = values.get(changes % values.len());
            for to in [None, other] {
                let changed = changed(&object, place, to);
                let after = result(&environment, &expression, &changed);
                assert_eq!(before, after, "{expression}\nwith {to:?} at {place:?}");
                changes += 1;
            }
        }
    }
    // Else it says nothing: of few expressions, or because all is taken to be read.
    assert!(compiled > 4_000, "{compiled} compiled");
    assert!(
        unread > 25_000 && changes > 50_000,
        "{unread} unread, {changes} changes"
    );
}

#[test]
fn what_is_not_read_is_known() {
    let environment = environment();
    for (expression, read) in [
        ("x.a.c.all(c, c.e != 's')", &["a", "c", "*", "e"][..]),
        ("(x.a.c + x.a.n).exists(c, c.d == 1)", &["a", "c", "*", "d"]),
        (
            "x.a.c.filter(c, c.d == 1).all(c, c.d == 2)",
            &["a", "c", "*", "d"],
        ),
        ("x.a.c.map(c, c.d).all(d, d == 2)", &["a", "c", "*", "d"]),
        (
            "[x.a.c, x.a.o].all(all, all.all(one, one.d == 1))",
            &["a", "c", "*", "d"],
        ),
        (
            "x.?a.?c.orValue([]).all(c, c.d == 1)",
            &["a", "c", "*", "d"],
        ),
        (
            "has(x.a.c) ? x.a.c.all(c, c.d == 1) : true",
            &["a", "c", "*", "d"],
        ),
        ("x.a.c.all(i, c, c.d == i)", &["a", "c", "*", "d"]),
        (
            "{'all': x.a.c}.all.exists(c, has(c.d))",
            &["a", "c", "*", "d"],
        ),
        ("x['a']['c'][0].d == 1", &["a", "c", "*", "d"]),
        ("x.a.c.size() == 2", &["a", "c"]),
        ("x.a.m['k.l'] == 'w'", &["a", "m", "k.l"]),
    ] {
        let reads = reads(&environment, expression).expect(expression);
        assert!(may_read(&reads, read), "{expression}");
        for other in [
            &["a", "c", "*", "f"][..],
            &["a", "m", "k"],
            &["a", "b"],
            &["z"],
        ] {
            assert!(!may_read(&reads, other), "{expression} {other:?}");
        }
    }
}

#[test]
fn what_would_take_long_to_follow_may_read_anything() {
    let environment = environment();
    let nested = (0..40).fold("x.a.b".to_owned(), |inner, _| format!("[{inner}]"));
    let around = (0..12).fold("v0".to_owned(), |inner, at| {
        format!("x.a.c.map(v{at}, {inner}).map(w{at}, [w{at}])")
    });
    for expression in [nested, around] {
        let reads = reads(&environment, &expression).expect("it compiles");
        assert!(may_read(&reads, &["z"]), "{expression}");
        assert_eq!(reads.members_of("x"), None);
    }
}
