//! Expressions that may cost more than they are allowed to, estimated from their text.
//!
//! What an expression costs depends on the object; `fairgate policy test` measures it. Here only what is costly for many
//! objects is found: authorization checks, which have a fixed price, and loops in loops in loops.

use serde_json::Value;

use fairgate_admission::EvaluationBudgets;
use fairgate_cel::DEFAULT_COST_LIMIT;

/// What one authorization check costs, in CEL cost units.
const CHECK: u64 = 350_000;

/// How many loops may be nested without a warning.
const MAX_NESTED: usize = 2;

/// The macros that loop over a list or a map.
const LOOPS: [&str; 10] = [
    "all",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "map",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
];

/// The fields of a policy's spec whose expressions may cost too much, and why.
pub(super) fn problems(spec: &Value) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let budgets = EvaluationBudgets::default();
    // What is charged to one budget. Messages share that of validations, and both compute the variables.
    let parts: [(u64, &[ExpressionList]); 3] = [
        (budgets.conditions, &[("matchConditions", "expression")]),
        (
            budgets.validations,
            &[
                ("variables", "expression"),
                ("validations", "expression"),
                ("validations", "messageExpression"),
            ],
        ),
        (
            budgets.annotations,
            &[("auditAnnotations", "valueExpression")],
        ),
    ];
    for (budget, lists) in parts {
        let mut checks: u64 = 0;
        for (list, member) in lists {
            for (index, item) in spec[*list].as_array().into_iter().flatten().enumerate() {
                let source = item[*member].as_str().unwrap_or_default();
                let field = format!("spec.{list}[{index}].{member}");
                let own = ExpressionShape::of(source);
                checks += own.checks;
                problems.extend(own.problems().map(|problem| (field.clone(), problem)));
            }
        }
        let cost = checks.saturating_mul(CHECK);
        if cost > budget {
            let problem = format!(
                "{checks} authorization checks cost {cost} if all are made, and all together may cost {budget}"
            );
            // The last list is that of the part, or shares its field with it.
            let (list, _) = lists[lists.len() - 1];
            problems.push((format!("spec.{list}"), problem));
        }
    }
    problems
}

/// A list of a policy's spec, and the member of its items that is an expression.
type ExpressionList = (&'static str, &'static str);

/// What the text of an expression shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ExpressionShape {
    /// Calls of `check` on the authorizer.
    checks: u64,
    /// The most loops that are nested in each other.
    nested_loops: usize,
}

impl ExpressionShape {
    fn of(source: &str) -> Self {
        let code = without_strings(source);
        let mut shape = Self::default();
        // For each open parenthesis, whether it is that of a loop.
        let mut open: Vec<bool> = Vec::new();
        let mut loops = 0;
        let asks = code.contains("authorizer");
        for (at, c) in code.char_indices() {
            match c {
                '(' => {
                    let before = code[..at].trim_end();
                    let name = before
                        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                        .next();
                    let name = name.unwrap_or_default();
                    let receiver = before[..before.len() - name.len()].trim_end();
                    let is_method = receiver.ends_with('.');
                    if is_method && name == "check" && asks {
                        shape.checks += 1;
                    }
                    let is_loop = is_method && LOOPS.contains(&name);
                    open.push(is_loop);
                    loops += usize::from(is_loop);
                    shape.nested_loops = shape.nested_loops.max(loops);
                }
                ')' => loops -= usize::from(open.pop() == Some(true)),
                _ => {}
            }
        }
        shape
    }

    fn problems(self) -> impl Iterator<Item = String> {
        let Self {
            checks,
            nested_loops,
        } = self;
        let cost = checks.saturating_mul(CHECK);
        let of_checks = (cost > DEFAULT_COST_LIMIT).then(|| {
            format!(
                "{checks} authorization checks cost {cost} if all are made, and an expression may cost {DEFAULT_COST_LIMIT}"
            )
        });
        let of_loops = (nested_loops > MAX_NESTED).then(|| {
            format!(
                "{nested_loops} loops are nested: what they cost grows with the product of the lengths of their lists, \
                 and an expression may cost {DEFAULT_COST_LIMIT}"
            )
        });
        of_checks.into_iter().chain(of_loops)
    }
}

/// The expression with the contents of its strings left out.
fn without_strings(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if c != '"' && c != '\'' {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let is_raw = code.ends_with(['r', 'R']);
        let triple: String = [c, c, c].iter().collect();
        let quote = if rest.starts_with(&triple) {
            &*triple
        } else {
            &rest[..1]
        };
        rest = &rest[quote.len()..];
        while !rest.is_empty() && !rest.starts_with(quote) {
            let is_escape = rest.starts_with('\\') && !is_raw;
            let mut chars = rest.chars();
            chars.next();
            if is_escape {
                chars.next();
            }
            rest = chars.as_str();
        }
        rest = rest.get(quote.len()..).unwrap_or_default();
        code.push_str("''");
    }
    code
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CHECK_CALL: &str = "authorizer.group('').resource('pods').check('get').allowed()";

    #[test]
    fn loops_and_checks_are_counted_outside_of_strings() {
        let shape = |source: &str| {
            let shape = ExpressionShape::of(source);
            (shape.checks, shape.nested_loops)
        };
        assert_eq!(shape("object.spec.replicas < 5"), (0, 0));
        let loops = "a.all(x, x.b.exists(y, y.c.map (z, z) == [])) && d.all(x, f(x))";
        assert_eq!(shape(loops), (0, 3));
        assert_eq!(shape("all(1) && map.size() > 0"), (0, 0));
        assert_eq!(
            shape(r#"x == '.all(.all(.all(' && y == "\".map(" && z == r'\'"#),
            (0, 0)
        );
        let triple = [
            "x == ", "''", "'a'.all(", "''", "' + r", "\"\"", "\".all(", "\"\"", "\"",
        ];
        assert_eq!(shape(&triple.concat()), (0, 0));
        assert_eq!(shape(&[CHECK_CALL; 3].join(" || ")), (3, 0));
        assert_eq!(shape("object.spec.check('a')"), (0, 0));
    }

    #[test]
    fn what_costs_too_much_is_found_in_each_list() {
        let one = json!({"expression": CHECK_CALL});
        let checks = [CHECK_CALL; 3].join(" && ");
        let three = json!({"expression": checks});
        let spec = json!({
            "matchConditions": vec![one.clone(); 8],
            "validations": [one, three],
            "auditAnnotations": [{"valueExpression": "a.all(b, b.all(c, c.all(d, d)))"}],
        });
        let fields: Vec<_> = problems(&spec)
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        let expected = [
            "spec.matchConditions",
            "spec.validations[1].expression",
            "spec.auditAnnotations[0].valueExpression",
        ];
        assert_eq!(fields, expected);
    }
}
