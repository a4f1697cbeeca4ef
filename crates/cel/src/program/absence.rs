//! What an expression does where something is absent, found by partial evaluation: whether it fails, or tests for that.
//!
//! Values that depend on anything else are unknown. An unknown value may also come from a test for what is absent: then nothing is said
//! of what it guards. So what is said to fail does, for some values of the rest; and not all that may fail is found.

use super::CelProgram;
use super::plan::{
    Attribute, AttributeRoot, BinaryOperator, CallCode, Code, CodeId, FoldCode, Qualifier,
    QualifierKey, UnaryOperator,
};
use crate::value::CelValue;

/// Pieces of code that are followed at most. What comes after is unknown.
const MAX_WORK: u32 = 20_000;

/// What is absent, and what is known besides.
#[derive(Clone, Copy, Debug)]
pub struct CelAbsence<'a> {
    /// The path to a member that its object lacks, the variable first. A variable alone is null.
    pub path: &'a [&'a str],
    /// Whether the object has the member, a map of something else than what is read: each key that an expression names is absent.
    pub lacks_keys: bool,
    /// Paths whose values are known texts.
    pub texts: &'a [(&'a [&'a str], &'a str)],
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelPartialValue(PartialValue);

impl CelPartialValue {
    /// Whether it fails because of what is absent, for some values of the rest.
    pub fn may_fail(&self) -> bool {
        self.0 == PartialValue::Fails
    }

    /// Whether it is `false`.
    pub fn is_false(&self) -> bool {
        self.0 == PartialValue::Bool(false)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PartialValue {
    Fails,
    Bool(bool),
    Int(i64),
    Text(Box<str>),
    Null,
    /// An optional without a value.
    NoValue,
    /// A list or map without elements.
    Empty,
    /// A map with elements of which none is named.
    Others,
    /// An object on the path to what is absent: so many steps of it are made.
    Way(usize),
    Unknown {
        /// Whether it depends on that something is absent.
        tested: bool,
    },
}

use PartialValue::{Bool, Empty, Fails, Int, NoValue, Null, Others, Text, Unknown, Way};

const UNKNOWN: PartialValue = Unknown { tested: false };

impl PartialValue {
    /// Whether the value is another one if nothing is absent.
    fn is_tested(&self) -> bool {
        matches!(
            self,
            Null | NoValue | Empty | Others | Unknown { tested: true }
        )
    }

    /// The value of something that is computed from these.
    fn of<'f>(parts: impl IntoIterator<Item = &'f Self>) -> Self {
        let mut tested = false;
        for part in parts {
            if *part == Fails {
                return Fails;
            }
            tested |= part.is_tested();
        }
        Unknown { tested }
    }

    /// One of two values, if it is not known which. `tested` is whether that depends on what is absent, so that deciding it may fail.
    fn either(self, other: &Self, tested: bool) -> Self {
        if self == *other && !tested {
            return self;
        }
        let parts = [&self, other];
        if !tested && parts.contains(&&Fails) {
            return Fails;
        }
        let tested = tested || parts.iter().any(|part| part.is_tested());
        Unknown { tested }
    }
}

impl CelProgram {
    /// What is known of the value of the expression where something is absent. The members of the variable `composed`, if there is one, are
    /// other expressions, with these `values`. It costs some microseconds for an expression of usual size, and is bounded.
    pub fn evaluate_partially(
        &self,
        absence: &CelAbsence<'_>,
        composed: &str,
        values: &dyn Fn(&str) -> Option<CelPartialValue>,
    ) -> CelPartialValue {
        let mut evaluation = PartialEvaluation {
            program: self,
            absence,
            composed,
            values,
            locals: vec![UNKNOWN; self.inits.len()],
            left: MAX_WORK,
        };
        CelPartialValue(evaluation.value(self.root))
    }
}

struct PartialEvaluation<'p> {
    program: &'p CelProgram,
    absence: &'p CelAbsence<'p>,
    composed: &'p str,
    values: &'p dyn Fn(&str) -> Option<CelPartialValue>,
    /// The variables of comprehensions, by number.
    locals: Vec<PartialValue>,
    left: u32,
}

impl PartialEvaluation<'_> {
    /// The value of a piece of code. It recurses as deep as an evaluation.
    fn value(&mut self, id: CodeId) -> PartialValue {
        let Some(left) = self.left.checked_sub(1) else {
            return Unknown { tested: true };
        };
        self.left = left;
        let program = self.program;
        match &program.code[id.index()] {
            Code::Const(value) => constant(value),
            Code::Local(number) => self.locals[*number as usize].clone(),
            Code::Attribute(attribute) => self.attribute(attribute),
            Code::Unary(operator, part) => unary(*operator, self.value(*part)),
            Code::Binary {
                operator,
                left,
                right,
                ..
            } => {
                let (left, right) = (self.value(*left), self.value(*right));
                self.binary(*operator, &left, &right)
            }
            Code::And(parts) => self.all(parts, true),
            Code::Or(parts) => self.all(parts, false),
            Code::Call(call) => self.call(call),
            Code::List { elements, .. } => self.collection(elements),
            Code::Map(entries) => {
                let parts = entries.iter().flat_map(|entry| [entry.key, entry.value]);
                let parts: Vec<_> = parts.collect();
                self.collection(&parts)
            }
            Code::Object(_, parts) => self.computed(parts),
            Code::Fold(fold) => self.fold(fold),
            Code::InSet(part, set) => match self.value(*part) {
                Text(text) => Bool(set.contains(&CelValue::from(text.into_string()))),
                value => PartialValue::of([&value]),
            },
            Code::OptionalOr(left, right) | Code::OptionalOrValue(left, right) => {
                match self.value(*left) {
                    NoValue => match self.value(*right) {
                        Unknown { .. } => Unknown { tested: true },
                        value => value,
                    },
                    value => value,
                }
            }
            Code::Append { accumulator, list } => {
                let list = self.value(*list);
                PartialValue::of([&self.locals[*accumulator as usize], &list])
            }
            Code::Insert { accumulator, args } => {
                let args = self.computed(args);
                PartialValue::of([&self.locals[*accumulator as usize], &args])
            }
        }
    }

    fn computed(&mut self, parts: &[CodeId]) -> PartialValue {
        let values: Vec<_> = parts.iter().map(|part| self.value(*part)).collect();
        PartialValue::of(&values)
    }

    fn collection(&mut self, parts: &[CodeId]) -> PartialValue {
        if parts.is_empty() {
            return Empty;
        }
        self.computed(parts)
    }

    /// `&&` if `neutral` is true, else `||`.
    fn all(&mut self, parts: &[CodeId], neutral: bool) -> PartialValue {
        let values: Vec<_> = parts.iter().map(|part| self.value(*part)).collect();
        if values.contains(&Bool(!neutral)) {
            return Bool(!neutral);
        }
        let rest: Vec<_> = values
            .iter()
            .filter(|value| **value != Bool(neutral))
            .collect();
        if rest.is_empty() {
            return Bool(neutral);
        }
        // What is tested decides whether the rest matters.
        let tested = rest.iter().any(|value| value.is_tested());
        if !tested && rest.contains(&&Fails) {
            return Fails;
        }
        Unknown { tested }
    }

    fn binary(
        &self,
        operator: BinaryOperator,
        left: &PartialValue,
        right: &PartialValue,
    ) -> PartialValue {
        use BinaryOperator as Op;
        match (operator, (left, right)) {
            (_, (Fails, _) | (_, Fails)) => Fails,
            (Op::Equals | Op::NotEquals, (one, other)) => match equal(one, other) {
                Some(equal) => Bool(equal == (operator == Op::Equals)),
                None => PartialValue::of([one, other]),
            },
            (Op::In, (Text(_) | Unknown { .. } | Int(_), Empty) | (Text(_), Others)) => Bool(false),
            (Op::In, (Text(key), Way(at))) => match self.member(*at, key) {
                Some(is_last) => Bool(!is_last || self.absence.lacks_keys),
                None => UNKNOWN,
            },
            (_, (Null, _) | (_, Null)) => Fails,
            (Op::Less, (Int(one), Int(other))) => Bool(one < other),
            (Op::LessEquals, (Int(one), Int(other))) => Bool(one <= other),
            (Op::Greater, (Int(one), Int(other))) => Bool(one > other),
            (Op::GreaterEquals, (Int(one), Int(other))) => Bool(one >= other),
            (_, (one, other)) => PartialValue::of([one, other]),
        }
    }

    /// Whether the member of the object after so many steps is the last of the path; `None` if it is not on the path.
    fn member(&self, steps: usize, name: &str) -> Option<bool> {
        let path = self.absence.path;
        (*path.get(steps)? == name).then_some(steps + 1 == path.len())
    }

    fn attribute(&mut self, attribute: &Attribute) -> PartialValue {
        let mut qualifiers = &*attribute.qualifiers;
        let mut value = match attribute.root {
            AttributeRoot::Local(number) => self.locals[number as usize].clone(),
            AttributeRoot::Code(id) => self.value(id),
            AttributeRoot::Conditional { condition, yes, no } => match self.value(condition) {
                Fails => Fails,
                Bool(true) => self.value(yes),
                Bool(false) => self.value(no),
                condition => {
                    let (yes, no) = (self.value(yes), self.value(no));
                    yes.either(&no, condition.is_tested())
                }
            },
            AttributeRoot::Variable(number) => {
                let name = &*self.program.variables[number as usize];
                match qualifiers.split_first() {
                    Some((member, rest)) if name == self.composed => {
                        qualifiers = rest;
                        self.composed_value(member)
                    }
                    _ => self.variable(name, qualifiers),
                }
            }
        };
        for (at, qualifier) in qualifiers.iter().enumerate() {
            let is_test = attribute.test_only && at + 1 == qualifiers.len();
            value = self.select(value, qualifier, is_test);
        }
        value
    }

    fn composed_value(&self, member: &Qualifier) -> PartialValue {
        match &member.key {
            QualifierKey::Field(name) => (self.values)(name).map_or(UNKNOWN, |value| value.0),
            QualifierKey::Const(_) | QualifierKey::Code(_) => UNKNOWN,
        }
    }

    /// A variable. If all that is selected of it is a known text, it is that.
    fn variable(&self, name: &str, selected: &[Qualifier]) -> PartialValue {
        let path = self.absence.path;
        if path.first() == Some(&name) {
            return if path.len() == 1 { Null } else { Way(1) };
        }
        let is_selected = |path: &[&str]| {
            let mut rest = selected.iter().map(|qualifier| match &qualifier.key {
                QualifierKey::Field(name) => Some(&**name),
                QualifierKey::Const(_) | QualifierKey::Code(_) => None,
            });
            path.split_first().is_some_and(|(first, path)| {
                *first == name
                    && selected.len() == path.len()
                    && path.iter().all(|step| rest.next() == Some(Some(*step)))
            })
        };
        let known = self
            .absence
            .texts
            .iter()
            .find(|(path, _)| is_selected(path));
        known.map_or(UNKNOWN, |(_, text)| Text((*text).into()))
    }

    /// A member or an element of a value, or whether there is one.
    fn select(
        &mut self,
        value: PartialValue,
        qualifier: &Qualifier,
        is_test: bool,
    ) -> PartialValue {
        let absent = |is_error: bool| match (is_test, qualifier.optional || !is_error) {
            (true, _) => Bool(false),
            (false, true) => NoValue,
            (false, false) => Fails,
        };
        if let QualifierKey::Code(id) = qualifier.key
            && self.value(id) == Fails
        {
            return Fails;
        }
        match value {
            Fails => Fails,
            Null if is_test => Fails,
            // It may be one of the others.
            Others if matches!(qualifier.key, QualifierKey::Code(_)) => Unknown { tested: true },
            Null | Empty | Others => absent(true),
            NoValue => absent(false),
            Way(at) => {
                let QualifierKey::Field(name) = &qualifier.key else {
                    return UNKNOWN;
                };
                match self.member(at, name) {
                    Some(true) if !self.absence.lacks_keys => absent(true),
                    Some(_) if is_test => Bool(true),
                    Some(true) => Others,
                    Some(false) => Way(at + 1),
                    None => UNKNOWN,
                }
            }
            // What is selected from a known text was selected with it.
            Text(_) if !is_test => value,
            value => PartialValue::of([&value]),
        }
    }

    fn call(&mut self, call: &CallCode) -> PartialValue {
        let values: Vec<_> = call.args.iter().map(|arg| self.value(*arg)).collect();
        match (&*call.function.name, &*values) {
            (_, values) if values.contains(&Fails) => Fails,
            ("hasValue", [NoValue]) => Bool(false),
            ("hasValue", [Way(_)]) => Bool(true),
            ("value", [NoValue]) => Fails,
            ("value" | "dyn" | "optional.of", [of @ (Way(_) | Null)]) => of.clone(),
            ("optional.none", []) | ("optional.ofNonZeroValue", [Null | Empty]) => NoValue,
            ("size", [Empty]) => Int(0),
            ("type" | "optional.ofNonZeroValue", [of]) => PartialValue::of([of]),
            (_, values) if values.contains(&Null) => Fails,
            (_, values) => PartialValue::of(values),
        }
    }

    fn fold(&mut self, fold: &FoldCode) -> PartialValue {
        let range = self.value(fold.range);
        if matches!(range, Fails | Null) {
            return Fails;
        }
        let init = self.program.inits[fold.accumulator as usize];
        let init = init.map_or(UNKNOWN, |init| self.value(init));
        self.locals[fold.accumulator as usize] = init.clone();
        if range != Empty {
            let variables = [Some(fold.variable), fold.second_variable];
            for variable in variables.into_iter().flatten() {
                self.locals[variable as usize] = UNKNOWN;
            }
            let step = self.value(fold.step);
            self.locals[fold.accumulator as usize] = init.either(&step, range.is_tested());
        }
        self.value(fold.result)
    }
}

fn constant(value: &CelValue<'_>) -> PartialValue {
    match value {
        CelValue::Bool(value) => Bool(*value),
        CelValue::Int(value) => Int(*value),
        CelValue::String(text) => Text((**text).into()),
        CelValue::Null => Null,
        CelValue::List(list) if list.is_empty() => Empty,
        CelValue::Map(map) if map.is_empty() => Empty,
        _ => UNKNOWN,
    }
}

fn unary(operator: UnaryOperator, value: PartialValue) -> PartialValue {
    match (operator, value) {
        (UnaryOperator::NotStrictlyFalse, Fails) => Bool(true),
        (UnaryOperator::NotStrictlyFalse, value @ Bool(_)) => value,
        (UnaryOperator::Not, Bool(value)) => Bool(!value),
        (_, value) => PartialValue::of([&value]),
    }
}

/// Whether two values are equal, if that is known.
fn equal(one: &PartialValue, other: &PartialValue) -> Option<bool> {
    match (one, other) {
        (Null, Null) => Some(true),
        (Null, Unknown { .. }) | (Unknown { .. }, Null) | (NoValue, _) | (_, NoValue) => None,
        (Null, _) | (_, Null) => Some(false),
        (Bool(one), Bool(other)) => Some(one == other),
        (Int(one), Int(other)) => Some(one == other),
        (Text(one), Text(other)) => Some(one == other),
        _ => None,
    }
}
