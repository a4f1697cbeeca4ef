//! What the expressions of a policy may read.

use std::collections::HashMap;
use std::sync::LazyLock;

use fairgate_cel::{CelOrigins, CelReads, CelStep};
use fairgate_objects::{defaults::DefaultedKinds, schema::UnreadParts};

use crate::environment::VARIABLES;
use crate::expression::PolicyExpression;
use crate::observer::ExpressionRole;

/// Shows what each expression of a policy may read: first the variables in their order, in which each sees those before it, and then
/// the others. A variable counts where it is used.
pub(crate) fn visit<'p>(
    variables: impl Iterator<Item = &'p (String, PolicyExpression)>,
    others: impl Iterator<Item = ((ExpressionRole, usize), &'p PolicyExpression)>,
    visit: &mut dyn FnMut((ExpressionRole, usize), CelReads),
) {
    let mut values: HashMap<&str, CelOrigins> = HashMap::new();
    for (index, (name, expression)) in variables.enumerate() {
        let (reads, value) = of_expression(expression, &values);
        // Which of two with one name others see depends on the order of evaluation.
        let value = if values.contains_key(&**name) {
            CelOrigins::anywhere()
        } else {
            value
        };
        values.insert(name, value);
        visit((ExpressionRole::Variable, index), reads);
    }
    for (place, expression) in others {
        let (mut reads, value) = of_expression(expression, &values);
        reads.add_whole(value);
        visit(place, reads);
    }
}

/// What an expression reads if the variables come from `values`, and where its own value comes from. One that does not compile reads
/// nothing.
fn of_expression(
    expression: &PolicyExpression,
    values: &HashMap<&str, CelOrigins>,
) -> (CelReads, CelOrigins) {
    let of_variable = |name: &str| values.get(name).cloned().unwrap_or_default();
    match &expression.program {
        Ok(program) => program.reads(VARIABLES, &of_variable),
        Err(_) => Default::default(),
    }
}

/// Whether the name of the object may be read.
pub(crate) fn may_read_name(reads: &CelReads) -> bool {
    let may_read = |path: &[&str]| reads.may_read(&CelStep::path(path));
    may_read(&["object", "metadata", "name"]) || may_read(&["request", "name"])
}

/// The kinds of objects of which a field may be read that has a default, or that depends on one.
pub(crate) fn read_defaults(reads: &CelReads) -> DefaultedKinds {
    /// What has no default in any kind; metadata has none but for some labels.
    const WITHOUT: [&str; 3] = ["apiVersion", "kind", "metadata"];
    /// Whether the defaults are there decides what counts as a change.
    const CHANGES: [&[&str]; 2] = [
        &["object", "metadata", "generation"],
        &[
            "object",
            "metadata",
            "annotations",
            "deprecated.daemonset.template.generation",
        ],
    ];
    static PLACES: LazyLock<PlaceTree> = LazyLock::new(|| {
        let mut tree = PlaceTree::default();
        for (kind, place) in DefaultedKinds::places() {
            tree.add(kind, place);
        }
        tree
    });
    if CHANGES
        .iter()
        .any(|path| reads.may_read(&CelStep::path(path)))
    {
        return DefaultedKinds::ALL;
    }
    let members = reads.members_of("object");
    let may_be_any = members.is_none_or(|all| all.iter().any(|member| !WITHOUT.contains(member)));
    let unknown = if may_be_any {
        DefaultedKinds::UNKNOWN
    } else {
        DefaultedKinds::NONE
    };
    PLACES
        .read(reads, &mut CelStep::path(&["object"]))
        .or(unknown)
}

/// The places of defaults as a tree, in which only what a policy reads is looked at.
#[derive(Default)]
struct PlaceTree {
    /// The kinds that have a default here.
    kinds: DefaultedKinds,
    below: Vec<(CelStep, PlaceTree)>,
}

impl PlaceTree {
    fn add(&mut self, kind: DefaultedKinds, place: &[&str]) {
        let Some((name, rest)) = place.split_first() else {
            self.kinds = self.kinds.or(kind);
            return;
        };
        let step = CelStep::path(&[name]).remove(0);
        let number = self.below.iter().position(|(of, _)| *of == step);
        let number = number.unwrap_or_else(|| {
            self.below.push((step, Self::default()));
            self.below.len() - 1
        });
        self.below[number].1.add(kind, rest);
    }

    /// The kinds with a place at or below `path` that may be read.
    fn read(&self, reads: &CelReads, path: &mut Vec<CelStep>) -> DefaultedKinds {
        // Where it is not read, nothing below is.
        if !reads.may_read(path) {
            return DefaultedKinds::NONE;
        }
        let mut found = self.kinds;
        for (step, below) in &self.below {
            path.push(step.clone());
            found = found.or(below.read(reads, path));
            path.pop();
        }
        found
    }
}

/// Whether the owners of the fields of the object may be read.
pub(crate) fn may_read_owners(reads: &CelReads) -> bool {
    reads.may_read(&CelStep::path(&["object", "metadata", "managedFields"]))
}

/// The parts of the object that are not read, and on which nothing depends that is.
pub(crate) fn unread_parts(reads: &CelReads) -> UnreadParts {
    static PATHS: LazyLock<Vec<(UnreadParts, Vec<CelStep>)>> = LazyLock::new(|| {
        let paths = UnreadParts::paths();
        let of_object = |path: Vec<_>| CelStep::path(&[&["object"], &*path].concat());
        paths.map(|(part, path)| (part, of_object(path))).collect()
    });
    let read = PATHS.iter().filter(|(_, path)| reads.may_read(path));
    read.fold(UnreadParts::ALL, |unread, (part, _)| unread.without(*part))
}
