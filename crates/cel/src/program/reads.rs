//! What an expression may read of its variables, found without evaluating it.
//!
//! Each value is followed to where it comes from: through selections, macros, lists and conditions, to the place at which
//! something is compared, computed or returned. What is found may be more than what an evaluation reads, and is never less.

use std::collections::BTreeSet;

use super::CelProgram;
use super::plan::{
    Attribute, AttributeRoot, BinaryOperator, CallCode, Code, CodeId, FoldCode, FoldCondition,
    QualifierKey,
};

/// Longer paths are cut: what is below is taken to be read with them.
const MAX_STEPS: usize = 16;

/// Values that come from more places, or are nested deeper in lists and maps of the expression, may come from anywhere.
const MAX_ORIGINS: usize = 128;
const MAX_DEPTH: u8 = 8;

/// Pieces of code and places of values that are followed at most, again for each round of the loops around them. What takes longer may
/// read anything.
const MAX_WORK: u32 = 20_000;

/// A step of a path: a member of an object, or an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CelStep {
    /// The member of that name; as the first step of a path, the variable of that name.
    Member(Box<str>),
    /// Any member or element.
    Any,
}

impl CelStep {
    /// The steps of a path; `*` is any member or element.
    pub fn path(names: &[&str]) -> Vec<Self> {
        let step = |name: &&str| match *name {
            "*" => Self::Any,
            name => Self::Member(name.into()),
        };
        names.iter().map(step).collect()
    }

    fn meets(&self, other: &Self) -> bool {
        self == other || *self == Self::Any || *other == Self::Any
    }
}

/// Where a value may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CelOrigins(BTreeSet<Origin>);

/// A place, and in how many lists and maps of the expression its value is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    path: Vec<CelStep>,
    depth: u8,
}

/// What is read: places that are read with all that is below, and those of which it matters that they are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CelReads {
    whole: BTreeSet<Vec<CelStep>>,
    presence: BTreeSet<Vec<CelStep>>,
}

impl CelReads {
    /// Whether what is at `path` may be read, alone or as a part of something: the first step is the variable. That it is tested whether
    /// something is there that contains it does not count.
    pub fn may_read(&self, path: &[CelStep]) -> bool {
        let meets = |read: &[CelStep]| read.iter().zip(path).all(|(one, other)| one.meets(other));
        self.whole.iter().any(|read| meets(read))
            || self
                .presence
                .iter()
                .any(|read| path.len() <= read.len() && meets(read))
    }

    /// The members of a variable that may be read. `None` if any may be.
    pub fn members_of(&self, variable: &str) -> Option<BTreeSet<&str>> {
        // Whether the variable itself is there says nothing of its members.
        let present = self.presence.iter().filter(|path| path.len() > 1);
        let mut members = BTreeSet::new();
        for path in self.whole.iter().chain(present) {
            match path.as_slice() {
                [CelStep::Member(name), ..] if **name != *variable => {}
                [_, CelStep::Member(name), ..] => {
                    members.insert(&**name);
                }
                _ => return None,
            }
        }
        Some(members)
    }

    /// Adds what another expression reads.
    pub fn add(&mut self, other: Self) {
        self.whole.extend(other.whole);
        self.presence.extend(other.presence);
    }

    /// Adds a value that is read as a whole.
    pub fn add_whole(&mut self, value: CelOrigins) {
        self.whole.extend(value.0.into_iter().map(|one| one.path));
    }

    /// Adds a value of which only the length is read: how many elements or members it has.
    fn add_length(&mut self, value: &CelOrigins) {
        self.presence
            .extend(value.0.iter().map(|one| match one.depth {
                0 => longer(&one.path, CelStep::Any),
                _ => one.path.clone(),
            }));
    }

    fn add_presence(&mut self, value: CelOrigins) {
        self.presence
            .extend(value.0.into_iter().map(|one| one.path));
    }
}

impl CelOrigins {
    /// From any variable.
    pub fn anywhere() -> Self {
        Self::at(Vec::new())
    }

    /// A variable as a whole.
    fn variable(name: &str) -> Self {
        Self::at(vec![CelStep::Member(name.into())])
    }

    fn at(path: Vec<CelStep>) -> Self {
        Self(BTreeSet::from([Origin { path, depth: 0 }]))
    }

    /// A member or element of the value.
    fn step(&self, step: &CelStep) -> Self {
        let of = |one: &Origin| match one.depth {
            0 => Origin {
                path: longer(&one.path, step.clone()),
                depth: 0,
            },
            depth => Origin {
                path: one.path.clone(),
                depth: depth - 1,
            },
        };
        Self(self.0.iter().map(of).collect())
    }

    fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The value as an element of a list or a map.
    fn nested(self) -> Self {
        let of = |one: Origin| Origin {
            path: one.path,
            depth: one.depth + 1,
        };
        Self(self.0.into_iter().map(of).collect())
    }

    fn is_too_much(&self) -> bool {
        self.0.len() > MAX_ORIGINS || self.0.iter().any(|one| one.depth > MAX_DEPTH)
    }
}

fn longer(path: &[CelStep], step: CelStep) -> Vec<CelStep> {
    let mut path = path.to_vec();
    if path.len() < MAX_STEPS {
        path.push(step);
    }
    path
}

impl CelProgram {
    /// What the expression may read besides its value, which is the reader's, and where that comes from. The members of the variable
    /// `composed`, if there is one, are other expressions: `values` says where theirs come from.
    ///
    /// It costs some microseconds for an expression of usual size, and is bounded.
    pub fn reads(
        &self,
        composed: &str,
        values: &dyn Fn(&str) -> CelOrigins,
    ) -> (CelReads, CelOrigins) {
        let mut follower = Follower {
            program: self,
            composed,
            values,
            locals: vec![CelOrigins::default(); self.inits.len()],
            reads: CelReads::default(),
            left: MAX_WORK,
        };
        let value = follower.value(self.root);
        (follower.reads, value)
    }
}

struct Follower<'p> {
    program: &'p CelProgram,
    composed: &'p str,
    values: &'p dyn Fn(&str) -> CelOrigins,
    /// Where the variables of comprehensions come from, by number.
    locals: Vec<CelOrigins>,
    reads: CelReads,
    left: u32,
}

impl Follower<'_> {
    /// Where the value of a piece of code comes from. It recurses as deep as an evaluation.
    fn value(&mut self, id: CodeId) -> CelOrigins {
        let Some(left) = self.left.checked_sub(1) else {
            return self.anything();
        };
        self.left = left;
        let program = self.program;
        let value = match &program.code[id.index()] {
            Code::Const(_) => CelOrigins::default(),
            Code::Local(number) => self.local(*number),
            Code::Attribute(attribute) => self.attribute(attribute),
            Code::Unary(_, part) | Code::InSet(part, _) => self.read_all(&[*part]),
            // Elements of lists stay what they are; who uses a sum reads both.
            Code::Binary {
                operator: BinaryOperator::Add,
                left,
                right,
                ..
            }
            | Code::OptionalOr(left, right)
            | Code::OptionalOrValue(left, right) => self.value(*left).and(self.value(*right)),
            Code::Binary { left, right, .. } => self.read_all(&[*left, *right]),
            Code::And(parts) | Code::Or(parts) | Code::Object(_, parts) => self.read_all(parts),
            Code::Call(call) => self.call(call),
            Code::List { elements, .. } => {
                let elements = elements.iter().map(|element| self.value(*element));
                let all = elements.fold(CelOrigins::default(), CelOrigins::and);
                all.nested()
            }
            Code::Map(entries) => {
                let mut all = CelOrigins::default();
                for entry in entries {
                    self.read_all(&[entry.key]);
                    all = all.and(self.value(entry.value));
                }
                all.nested()
            }
            Code::Fold(fold) => self.fold(fold),
            Code::Append { accumulator, list } => {
                let list = self.value(*list);
                self.local(*accumulator).and(list)
            }
            Code::Insert { accumulator, args } => self.insert(*accumulator, args),
        };
        if value.is_too_much() {
            return self.anything();
        }
        value
    }

    /// From anywhere: all is taken to be read.
    fn anything(&mut self) -> CelOrigins {
        self.reads.whole.insert(Vec::new());
        CelOrigins::default()
    }

    fn local(&self, number: u32) -> CelOrigins {
        self.locals[number as usize].clone()
    }

    /// Reads values as a whole, to compute something else of them.
    fn read_all(&mut self, parts: &[CodeId]) -> CelOrigins {
        for part in parts {
            let value = self.value(*part);
            self.reads.add_whole(value);
        }
        CelOrigins::default()
    }

    fn attribute(&mut self, attribute: &Attribute) -> CelOrigins {
        let mut qualifiers = attribute.qualifiers.iter();
        let mut value = match attribute.root {
            AttributeRoot::Local(number) => self.local(number),
            AttributeRoot::Code(id) => self.value(id),
            AttributeRoot::Conditional { condition, yes, no } => {
                self.read_all(&[condition]);
                self.value(yes).and(self.value(no))
            }
            AttributeRoot::Variable(number) => {
                let name = &*self.program.variables[number as usize];
                if name != self.composed {
                    CelOrigins::variable(name)
                } else if let Some(QualifierKey::Field(member)) =
                    qualifiers.next().map(|first| &first.key)
                {
                    // If its presence is tested, it is there, and evaluated.
                    (self.values)(member)
                } else {
                    return self.anything();
                }
            }
        };
        for qualifier in qualifiers {
            let step = match &qualifier.key {
                QualifierKey::Field(name) => CelStep::Member(name.clone()),
                QualifierKey::Const(_) => CelStep::Any,
                QualifierKey::Code(id) => {
                    self.read_all(&[*id]);
                    CelStep::Any
                }
            };
            let places = u32::try_from(value.0.len()).unwrap_or(u32::MAX);
            self.left = self.left.saturating_sub(places);
            if self.left == 0 {
                return self.anything();
            }
            value = value.step(&step);
        }
        if attribute.test_only {
            self.reads.add_presence(value);
            return CelOrigins::default();
        }
        value
    }

    fn call(&mut self, call: &CallCode) -> CelOrigins {
        match (&*call.function.name, &*call.args) {
            ("size", [of]) => {
                let value = self.value(*of);
                self.reads.add_length(&value);
                CelOrigins::default()
            }
            ("hasValue", [of]) => {
                let value = self.value(*of);
                self.reads.add_presence(value);
                CelOrigins::default()
            }
            ("dyn" | "value" | "optional.of", [of]) => self.value(*of),
            (_, args) => self.read_all(args),
        }
    }

    fn insert(&mut self, accumulator: u32, args: &[CodeId]) -> CelOrigins {
        let all = self.local(accumulator);
        match args {
            [key, value] => {
                self.read_all(&[*key]);
                let value = self.value(*value).nested();
                all.and(value)
            }
            // The entries of a map.
            args => args.iter().fold(all, |all, arg| all.and(self.value(*arg))),
        }
    }

    fn fold(&mut self, fold: &FoldCode) -> CelOrigins {
        let range = self.value(fold.range);
        self.reads.add_length(&range);
        let elements = range.step(&CelStep::Any);
        match fold.second_variable {
            None => self.locals[fold.variable as usize] = elements,
            Some(second) => {
                // What keys there are is known from their presence.
                self.locals[fold.variable as usize] = CelOrigins::default();
                self.locals[second as usize] = elements;
            }
        }
        let accumulator = fold.accumulator as usize;
        let init = self.program.inits[accumulator];
        self.locals[accumulator] = match init {
            Some(init) => self.value(init),
            None => CelOrigins::default(),
        };
        loop {
            match fold.condition {
                FoldCondition::Code(condition) => {
                    self.read_all(&[condition]);
                }
                FoldCondition::Always | FoldCondition::Unless(_) => {}
            }
            let step = self.value(fold.step);
            let before = self.locals[accumulator].clone();
            self.locals[accumulator] = before.clone().and(step);
            if self.locals[accumulator] == before {
                break;
            }
        }
        if let FoldCondition::Unless(_) = fold.condition {
            let value = self.local(fold.accumulator);
            self.reads.add_whole(value);
        }
        self.value(fold.result)
    }
}
