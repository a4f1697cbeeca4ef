//! Ways to chain and to nest every operator, macro and function that an environment declares, so that a new one is tried
//! without being named here, and every form of a token.

use fairgate_cel::{CelEnvironment, CelMacro};

/// A text that is repeated before a middle, the middle, and a text that is repeated after it.
pub(crate) type Construct = (String, String, String);

fn construct(before: &str, middle: &str, after: &str) -> Construct {
    (before.to_owned(), middle.to_owned(), after.to_owned())
}

/// All constructs of an environment.
pub(crate) fn constructs(environment: &CelEnvironment) -> Vec<Construct> {
    let mut all = tokens();
    let mut functions: Vec<_> = environment.functions().collect();
    functions.sort_unstable();
    for function in functions {
        if function.contains(['_', '@', '!']) && !function.contains(char::is_alphanumeric)
            || function == "@in"
        {
            operator(function, &mut all);
        } else if !function.starts_with('@') {
            call(function, &mut all);
        }
    }
    let mut macros: Vec<_> = environment.macros().collect();
    macros.sort_unstable_by_key(|of| (of.name(), of.args()));
    for of in macros {
        macro_call(of, environment, &mut all);
    }
    all
}

/// An operator, whose name has `_` for each operand: as it stands, in parentheses, on the left and on the right.
fn operator(name: &str, to: &mut Vec<Construct>) {
    let text = if name == "@in" { "_ in _" } else { name };
    let operands: Vec<_> = text.match_indices('_').map(|(at, _)| at).collect();
    for nested in &operands {
        // The others are `a`.
        let (before, after) = (&text[..*nested], &text[nested + 1..]);
        let (before, after) = (before.replace('_', "a"), after.replace('_', "a"));
        to.push(construct(&before, "a", &after));
        to.push(construct(&format!("{before}("), "a", &format!("){after}")));
        to.push(construct(
            &format!("{before}[("),
            "a",
            &format!(")][0]{after}"),
        ));
    }
    assert!(!operands.is_empty(), "{name} has no operands");
}

/// A function: on a target, in an argument, with many arguments, and of all its results.
fn call(name: &str, to: &mut Vec<Construct>) {
    to.push(construct("", "a", &format!(".{name}()")));
    to.push(construct("", "a", &format!(".{name}(a)")));
    to.push(construct(&format!("{name}("), "a", ")"));
    to.push(construct(&format!("a.{name}("), "a", ")"));
    to.push(construct(&format!("a.{name}(a, "), "a", ")"));
    to.push(construct(&format!("{name}(a).{name}("), "a", ")"));
    to.push(construct("", &format!("{name}(a"), ",a"));
}

/// What the arguments of macros are made of. The first that compiles is taken.
const ARGUMENTS: &[&str] = &["x", "y", "a.b", "true", "{1: 1}", "[1]", "optional.of(1)"];
const TARGETS: &[&str] = &["xs", "a", "optional.of(1)"];

/// A macro: nested in its target and in each of its arguments, and chained.
fn macro_call(of: &CelMacro, environment: &CelEnvironment, to: &mut Vec<Construct>) {
    let targets = if of.is_member() { TARGETS } else { &[""] };
    let candidates = targets.iter().flat_map(|target| {
        let choices = ARGUMENTS.len().pow(u32::try_from(of.args()).unwrap());
        (0..choices).map(move |choice| {
            let places = (0..u32::try_from(of.args()).unwrap()).rev();
            let digits = places.map(|place| choice / ARGUMENTS.len().pow(place) % ARGUMENTS.len());
            (*target, digits.map(|at| ARGUMENTS[at]).collect::<Vec<_>>())
        })
    });
    let written = |target: &str, args: &[&str]| {
        let dot = if of.is_member() { "." } else { "" };
        format!("{target}{dot}{}({})", of.name(), args.join(", "))
    };
    let (target, args) = candidates
        .into_iter()
        .find(|(target, args)| environment.compile(&written(target, args)).is_ok())
        .unwrap_or_else(|| {
            panic!(
                "no call of {} compiles: list what its arguments are",
                of.name()
            )
        });
    for nested in 0..args.len() {
        let mut around = args.clone();
        around[nested] = "\0";
        let text = written(target, &around);
        let (before, after) = text.split_once('\0').unwrap();
        to.push(construct(before, args[nested], after));
        to.push(construct(
            &format!("{before}["),
            args[nested],
            &format!("][0]{after}"),
        ));
    }
    if of.is_member() {
        let after = written("", &args);
        to.push(construct("", target, &after));
        to.push(construct("[", target, &format!("]{after}")));
    }
}

/// What is inside of literals of text.
const INSIDE_TEXT: &[&str] = &[
    "a",
    "\u{e9}",
    "\\n",
    "\\\\",
    "\\'",
    "\\x41",
    "\\u00e9",
    "\\U0001f600",
    "\\101",
    "\\q",
    "\\",
    "\\x",
    "\\u12",
    "\n",
    "\r\n",
    "''",
    "\"\"",
    "\u{0}",
    "{",
    "%s",
];

/// Tokens and parts of them.
const REPEATED: &str = "// ; // a\n ; \n ; \t ; ` ; `a` ; `a.b`. ; 1 ; 0x1 ; 1u ; 1.5 ; 1e5 ; -1 ; - ; ! ; ! ! ; a ; _ ; in ; in a ; true ; \
    null a ; if ; for( ; . ; .. ; ? ; : ; , ; # ; \u{0} ; \u{feff} ; \u{1f600} ; a, ; a: ; a? ; ?a ; [? ; {? ; .? ; a.? ; a[? ; [] ; {} ; () ; \
    a{ ; a.a{ ; } ; ] ; ) ; ([{ ; a in a ; a= ; a& ; a| ; && ; || ; == ; '\\ ; \"'";

/// Lists of parts: the first, and each that follows.
const LISTS: &str = "[ ,a ; [? ,?a ; {a:a ,a:a ; {?a:a ,?a:a ; T{f:a ,f:a ; T{?f:a ,?f:a ; f(a ,a ; a.f(a ,a ; a[a ][a ; a[?a ][?a";

/// What encloses a part.
const BRACKETS: &str = "( ) ; [ ] ; [? ] ; {a: } ; { :a} ; {?a: } ; {? :a} ; T{f: } ; T{?f: } ; a.b.T{f: } ; a[ ] ; a[? ] ; !( ) ; -( ) ; \
    -[ ] ; a?( ):a ; a?a:( ) ; ( )?a:a ; a.?b[ ]";

/// The forms of tokens, and of lists of parts.
fn tokens() -> Vec<Construct> {
    let mut all = Vec::new();
    for prefix in ["", "r", "bR"] {
        for (quote, inside) in ["'", "\"\"\""]
            .iter()
            .flat_map(|quote| INSIDE_TEXT.iter().map(move |of| (quote, of)))
        {
            // One long literal, one that does not end, and many short ones.
            all.push(construct("", &format!("{prefix}{quote}"), inside));
            all.push(construct(inside, quote, ""));
            all.push(construct(
                "",
                "''",
                &format!("+{prefix}{quote}{inside}{quote}"),
            ));
        }
    }
    for repeated in REPEATED.split(" ; ") {
        all.push(construct(repeated, "", ""));
        all.push(construct(repeated, "a", ""));
        all.push(construct("", "a", repeated));
    }
    let pairs = |of: &'static str| of.split(" ; ").map(|pair| pair.split_once(' ').unwrap());
    for (first, next) in pairs(LISTS) {
        all.push(construct("", first, next));
    }
    for (before, after) in pairs(BRACKETS) {
        all.push(construct(before, "a", after));
        all.push(construct(before, "", ""));
    }
    all
}
