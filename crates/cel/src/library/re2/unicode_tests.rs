//! Every code point and every class of Unicode that Go's packages `unicode` and `regexp` know, compared with ours.
//!
//! `oracle/run` writes what Go says to `tests/corpus/unicode.jsonl`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use fairgate_gotext::Quoted;

use super::class::escaped;
use super::tree::{PatternNode, TreeBuilder};
use crate::unicode::{fold, may_have_case};

fn facts() -> Vec<serde_json::Value> {
    let corpus = include_str!("../../../tests/corpus/unicode.jsonl");
    let lines = corpus.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn code_point(text: &str) -> u32 {
    u32::from_str_radix(text, 16).expect(text)
}

/// The characters of ranges such as `41-5a 61`. No text has surrogates, which are left out.
fn characters(text: &str) -> ClassUnicode {
    let ranges = text.split_whitespace().filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = char::from_u32(code_point(first)).unwrap_or('\u{e000}');
        let last = char::from_u32(code_point(last)).unwrap_or('\u{d7ff}');
        (first <= last).then(|| ClassUnicodeRange::new(first, last))
    });
    ClassUnicode::new(ranges)
}

/// The class of a pattern that is one class; `None` if it is refused.
fn class_of(pattern: &str, folds: bool) -> Option<ClassUnicode> {
    let (parsed, rest) = escaped(pattern, folds).ok()??;
    assert_eq!(rest, "");
    Some(parsed.class.class().clone())
}

/// The number of characters that are in one class only, and some of them.
fn difference(ours: &ClassUnicode, gos: &ClassUnicode) -> Option<String> {
    let mut differ = ours.clone();
    differ.symmetric_difference(gos);
    let count: usize = differ.ranges().iter().map(ClassUnicodeRange::len).sum();
    let some: Vec<_> = differ.ranges().iter().take(5).collect();
    (count > 0).then(|| format!("{count} characters differ, such as {some:?}"))
}

/// Fails unless so many are different as are known to be.
fn check(differences: &[String], known: usize) {
    assert_eq!(differences.len(), known, "{differences:?}");
}

#[test]
fn every_class_has_the_characters_that_it_has_in_go() {
    let facts = facts();
    let named = facts.iter().filter(|fact| fact["class"].is_string());
    let by_name: HashMap<_, _> = named.map(|fact| (fact["class"].as_str(), fact)).collect();
    assert!(by_name.len() > 250, "{}", by_name.len());
    let mut differences = Vec::new();
    for fact in facts.iter().filter(|fact| fact["class"].is_string()) {
        let name = fact["class"].as_str().unwrap();
        let of = fact["same"]
            .as_str()
            .map_or(fact, |same| by_name[&Some(same)]);
        let plain = of["ranges"].as_str().unwrap_or_default();
        let folded = of["folded"].as_str().unwrap_or(plain);
        for (folds, expected) in [(false, plain), (true, folded)] {
            let expected = characters(expected);
            let mut others = expected.clone();
            others.negate();
            for (pattern, expected) in [
                (format!(r"\p{{{name}}}"), &expected),
                (format!(r"\P{{{name}}}"), &others),
            ] {
                let why = match (class_of(&pattern, folds), fact["error"].is_string()) {
                    (None, true) => None,
                    (None, false) => Some("is refused".to_owned()),
                    (Some(_), true) => Some("is accepted".to_owned()),
                    (Some(ours), false) => difference(&ours, expected),
                };
                differences.extend(why.map(|why| format!("{pattern} {folds}: {why}")));
            }
        }
    }
    check(&differences, 0);
}

/// Names that the crate with our tables knows, and Go may not.
#[test]
fn no_other_name_is_a_class() {
    let facts = facts();
    let canonical = |name: &str| name.replace(['_', '-', ' '], "").to_ascii_lowercase();
    let known = facts.iter().filter(|fact| fact["error"].is_null());
    let known: BTreeSet<_> = known
        .filter_map(|fact| fact["class"].as_str().map(canonical))
        .collect();
    let newer = "garay todhri sunuwar gurungkhema kiratrai olonal tulutigalari sidetic taiyo beriaerfe tolongsiki";
    let short = "grek latn cyrl han hani zyyy zinh zzzz qaai hrkt khar";
    let properties = "alphabetic emoji cased age dash math whitespace wspace uppercase lowercase idstart any all none";
    let mut differences = Vec::new();
    for name in [newer, short, properties].join(" ").split(' ') {
        let accepted = class_of(&format!(r"\p{{{name}}}"), false).is_some();
        if accepted != known.contains(&canonical(name)) {
            differences.push(format!("{name} accepted: {accepted}"));
        }
    }
    check(&differences, 0);
}

/// The characters that differ in case alone, as a pattern of one character and as a class of one character have them.
#[test]
fn every_character_has_the_case_that_it_has_in_go() {
    let facts = facts();
    let orbits = facts.iter().find_map(|fact| fact["orbits"].as_array());
    let mut others: BTreeMap<char, BTreeSet<char>> = BTreeMap::new();
    for orbit in orbits.expect("the corpus has orbits") {
        let orbit = orbit.as_str().unwrap().split(' ');
        let orbit: BTreeSet<char> = orbit
            .map(|one| char::from_u32(code_point(one)).expect("a character"))
            .collect();
        others.extend(orbit.iter().map(|one| (*one, orbit.clone())));
    }
    assert!(others.len() > 2_500, "{}", others.len());
    let mut differences = Vec::new();
    for character in '\0'..=char::MAX {
        let expected = match others.get(&character) {
            Some(orbit) => orbit.clone(),
            None if !may_have_case(character) => continue,
            None => BTreeSet::from([character]),
        };
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(character, character)]);
        fold(&mut class);
        let ranges = class.ranges().iter();
        let of_class: BTreeSet<char> = ranges.flat_map(|one| one.start()..=one.end()).collect();
        let mut tree = TreeBuilder::default();
        let node = tree.character(character, true);
        let tree = tree.finish(node, super::tree::PatternSize::default());
        let of_letter = match tree.node(node) {
            PatternNode::Set(set) => {
                let class = tree.sets[set as usize].to_class();
                let ranges = class.ranges().iter();
                ranges.flat_map(|one| one.start()..=one.end()).collect()
            }
            _ => BTreeSet::from([character]),
        };
        if of_class != expected || of_letter != expected {
            differences.push(format!(
                "{:x}: {of_class:?}, {of_letter:?}",
                u32::from(character)
            ));
        }
    }
    check(&differences, 0);
}

#[test]
fn every_character_is_quoted_and_trimmed_as_in_go() {
    let facts = facts();
    let class = |key: &str| {
        let ranges = facts.iter().find_map(|fact| fact[key].as_str());
        characters(ranges.expect(key))
    };
    let (printable, spaces) = (class("printable"), class("spaces"));
    let is_in = |class: &ClassUnicode, character: char| {
        let after = class
            .ranges()
            .partition_point(|range| range.start() <= character);
        after > 0 && character <= class.ranges()[after - 1].end()
    };
    let mut differences = Vec::new();
    for character in '\u{80}'..=char::MAX {
        let text = character.to_string();
        let is_quoted_as_it_is = Quoted(&text).to_string() == format!("\"{text}\"");
        let is_space = text.trim().is_empty();
        if is_quoted_as_it_is != is_in(&printable, character)
            || is_space != is_in(&spaces, character)
        {
            differences.push(format!("{:x}", u32::from(character)));
        }
    }
    check(&differences, 0);
}
