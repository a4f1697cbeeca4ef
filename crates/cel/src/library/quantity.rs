//! Quantities: numbers with a suffix, such as `500m` or `1.5Gi`.
//!
//! As in the original, a quantity is a 64-bit integer with a power of ten as long as that fits, and a decimal number of
//! any size otherwise. Only the first kind can be an integer for `isInteger` and `asInteger`.
//!
//! Two differences from the original: a result for which it would need gigabytes, such as the sum of `1e2000000000` and
//! 1, is an error here; and it modifies a quantity of the second kind in place when something is added to it, whereas
//! values never change here.
//!
//! Source: Kubernetes `apimachinery/pkg/api/resource` and `apiserver/pkg/cel/library/quantity.go`.

use std::any::Any;
use std::cmp::Ordering;

use fairgate_gotext::quantity::{NANO, QuantityError, QuantityText};
use num_bigint::BigInt;

use super::go_text::{fixed, int, tenth, text};
use super::opaque_types::{declare_order, opaque, unconvertible};
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelResult, CelValue, CelWork};

/// The name of the CEL type of quantities.
const QUANTITY: &str = "kubernetes.Quantity";

/// The maximum difference of powers of ten up to which numbers are aligned, which limits their digits.
const MOST_DIGITS: i64 = 100_000;

/// The functions of quantities.
#[derive(Clone, Copy, Debug)]
pub struct QuantityLibrary;

/// A value of this type.
#[derive(Debug)]
struct QuantityValue {
    amount: Amount,
    /// Whether it is a sum or difference. The original has such values of another type of Go, and cannot compare a
    /// quantity with one of them; only the other way round.
    computed: bool,
}

/// A number: `digits · 10^exponent`.
#[derive(Clone, Debug)]
enum Amount {
    Small { digits: i64, exponent: i64 },
    Large { digits: BigInt, exponent: i64 },
}

impl CelOpaque for QuantityValue {
    fn type_name(&self) -> &str {
        QUANTITY
    }

    fn go_type(&self) -> &'static str {
        "cel.Quantity"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn CelOpaque) -> Option<bool> {
        let other = other.as_any().downcast_ref::<Self>()?;
        (!other.computed).then(|| self.order(other) == Ordering::Equal)
    }

    /// Comparing and printing many digits takes the square of their number.
    fn work(&self) -> u64 {
        match &self.amount {
            Amount::Small { .. } => 2,
            Amount::Large { digits, .. } => {
                let words = digits.bits() / 64;
                40 + 8 * words.saturating_sub(FEW_WORDS) + many_digits(words)
            }
        }
    }

    fn conversion_error(&self) -> Option<String> {
        Some(unconvertible("*resource.Quantity", self))
    }

    fn print(&self) -> String {
        self.amount.print()
    }
}

fn quantity_type() -> CelType {
    CelType::object(QUANTITY)
}

impl CelLibrary for QuantityLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let parsing = |args: &[CelValue<'_>], _: &CelValue<'_>| Some(tenth(args[0].cost_size()));
        to.function(
            CelFunctionDecl::new("quantity")
                .cost(parsing)
                .overload(CelOverload::global(
                    "string_to_quantity",
                    [CelType::String],
                    quantity_type(),
                    Metered(make),
                )),
        );
        to.function(CelFunctionDecl::new("isQuantity").cost(parsing).overload(
            CelOverload::global(
                "is_quantity_string",
                [CelType::String],
                CelType::Bool,
                Metered(is_quantity),
            ),
        ));
        declare_views(to);
        declare_arithmetic(to);
        declare_order(to, "quantity", &quantity_type(), QuantityValue::order);
    }
}

fn make<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let parsed = parse_within(text(args, 0)?, work)?;
    let amount = parsed.map_err(CelError::new)?;
    let computed = false;
    Ok(CelValue::opaque(QuantityValue { amount, computed }))
}

fn is_quantity<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    Ok(parse_within(text(args, 0)?, work)?.is_ok().into())
}

/// Reads a quantity; one with many digits takes the square of their number.
fn parse_within(text: &str, work: &mut CelWork<'_>) -> Result<Result<Amount, String>, CelError> {
    let length = text.len() as u64;
    work.burn(4 + length.saturating_sub(FEW_DIGITS) + many_digits(length / 20))?;
    let parsed = parse(text);
    if parsed.as_ref().is_err_and(|why| why == TOO_MANY_DIGITS) {
        return Err(CelError::own_limit(TOO_MANY_DIGITS));
    }
    if let Ok(Amount::Large { digits, .. }) = &parsed {
        work.burn(40 + 8 * (digits.bits() / 64))?;
    }
    Ok(parsed)
}

/// So many digits, and so many machine words, take no longer than a function call.
const FEW_DIGITS: u64 = 100;
const FEW_WORDS: u64 = 8;

/// The steps of what takes the square of a number of machine words.
fn many_digits(words: u64) -> u64 {
    words.saturating_mul(words) / 64
}

fn declare_views(to: &mut CelDeclarations) {
    // In the original this is not a member function, contrary to its documentation.
    to.function(CelFunctionDecl::new("sign").overload(CelOverload::global(
        "quantity_sign",
        [quantity_type()],
        CelType::Int,
        fixed(|args| Ok((quantity(args, 0)?.sign() as i64).into())),
    )));
    to.function(
        CelFunctionDecl::new("isInteger").overload(CelOverload::member(
            "quantity_is_integer",
            [quantity_type()],
            CelType::Bool,
            fixed(|args| Ok(quantity(args, 0)?.integer().is_some().into())),
        )),
    );
    to.function(
        CelFunctionDecl::new("asInteger").overload(CelOverload::member(
            "quantity_get_int",
            [quantity_type()],
            CelType::Int,
            fixed(|args| {
                let value = quantity(args, 0)?.integer();
                let value =
                    value.ok_or_else(|| CelError::new("cannot convert value to integer"))?;
                Ok(value.into())
            }),
        )),
    );
    to.function(
        CelFunctionDecl::new("asApproximateFloat").overload(CelOverload::member(
            "quantity_get_float",
            [quantity_type()],
            CelType::Double,
            fixed(|args| Ok(quantity(args, 0)?.approximate().into())),
        )),
    );
}

fn declare_arithmetic(to: &mut CelDeclarations) {
    declare_sum::<false>(to, "add");
    declare_sum::<true>(to, "sub");
}

fn declare_sum<const NEGATES: bool>(to: &mut CelDeclarations, name: &str) {
    to.function(
        CelFunctionDecl::new(name)
            .overload(CelOverload::member(
                &format!("quantity_{name}"),
                [quantity_type(), quantity_type()],
                quantity_type(),
                Metered(sum_of_quantities::<NEGATES>),
            ))
            .overload(CelOverload::member(
                &format!("quantity_{name}_int"),
                [quantity_type(), CelType::Int],
                quantity_type(),
                Metered(sum_with_integer::<NEGATES>),
            )),
    );
}

fn sum_of_quantities<'a, const NEGATES: bool>(
    args: &[CelValue<'a>],
    work: &mut CelWork<'_>,
) -> CelResult<'a> {
    sum::<NEGATES>(quantity(args, 0)?, quantity(args, 1)?, work)
}

fn sum_with_integer<'a, const NEGATES: bool>(
    args: &[CelValue<'a>],
    work: &mut CelWork<'_>,
) -> CelResult<'a> {
    let (digits, exponent) = (int(args, 1)?, 0);
    let integer = Amount::Small { digits, exponent };
    sum::<NEGATES>(quantity(args, 0)?, &integer, work)
}

fn sum<'a, const NEGATES: bool>(a: &Amount, b: &Amount, work: &mut CelWork<'_>) -> CelResult<'a> {
    let sum = if NEGATES {
        a.minus(b, work)
    } else {
        a.plus(b, work)
    };
    let (amount, computed) = (sum?, true);
    Ok(CelValue::opaque(QuantityValue { amount, computed }))
}

fn quantity<'v>(args: &'v [CelValue<'_>], at: usize) -> Result<&'v Amount, CelError> {
    opaque(args, at).map(|value: &QuantityValue| &value.amount)
}

/// The original has no such limit.
const TOO_MANY_DIGITS: &str = "quantity has too many digits";

/// `10^power`; `power` must be from 0 to a few times [`MOST_DIGITS`].
fn ten_to(power: i64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(power).unwrap_or(0))
}

fn sign_of(digits: &BigInt) -> Ordering {
    digits.cmp(&BigInt::ZERO)
}

fn length(digits: &BigInt) -> i64 {
    i64::try_from(digits.magnitude().to_string().len()).unwrap_or(i64::MAX)
}

impl QuantityValue {
    fn order(&self, other: &Self) -> Ordering {
        self.amount.order(&other.amount)
    }
}

impl Amount {
    fn print(&self) -> String {
        let (digits, exponent) = self.parts();
        let text = digits.to_string();
        let short = text.trim_end_matches('0');
        if short.is_empty() || short == "-" {
            return "0e0".to_owned();
        }
        let dropped = i64::try_from(text.len() - short.len()).unwrap_or(0);
        format!("{short}e{}", exponent + dropped)
    }

    fn parts(&self) -> (BigInt, i64) {
        match self {
            Self::Small { digits, exponent } => (BigInt::from(*digits), *exponent),
            Self::Large { digits, exponent } => (digits.clone(), *exponent),
        }
    }

    fn sign(&self) -> Ordering {
        match self {
            Self::Small { digits, .. } => digits.cmp(&0),
            Self::Large { digits, .. } => sign_of(digits),
        }
    }

    /// The value as an integer, if the original recognises it as one.
    fn integer(&self) -> Option<i64> {
        let Self::Small { digits, exponent } = self else {
            return None;
        };
        match (*digits, u32::try_from(*exponent)) {
            (_, Err(_)) => None,
            (0, _) => Some(0),
            (digits, Ok(exponent)) => digits.checked_mul(10_i64.checked_pow(exponent)?),
        }
    }

    fn approximate(&self) -> f64 {
        let (digits, exponent) = self.parts();
        let base: f64 = digits.to_string().parse().unwrap_or(f64::NAN);
        if exponent == 0 {
            base
        } else {
            base * power_of_ten(exponent)
        }
    }

    fn minus(&self, other: &Self, work: &mut CelWork<'_>) -> Result<Self, CelError> {
        // As in the original, negating `i64::MIN` wraps around to `i64::MIN` if both numbers are small.
        if let Self::Small { digits, exponent } = *other {
            let digits = digits.wrapping_neg();
            if let Some(sum) = self.small_plus(&Self::Small { digits, exponent }) {
                return Ok(sum);
            }
        }
        let (digits, exponent) = other.parts();
        let digits = -digits;
        self.plus(&Self::Large { digits, exponent }, work)
    }

    /// The sum; one of many digits takes steps, and is not begun where there are too few.
    fn plus(&self, other: &Self, work: &mut CelWork<'_>) -> Result<Self, CelError> {
        if let Some(sum) = self.small_plus(other) {
            return Ok(sum);
        }
        let ((a, a_exponent), (b, b_exponent)) = (self.parts(), other.parts());
        let exponent = a_exponent.min(b_exponent);
        let difference = a_exponent.abs_diff(b_exponent);
        if difference > MOST_DIGITS.unsigned_abs() {
            return Err(CelError::own_limit(TOO_MANY_DIGITS));
        }
        // A machine word has 19 digits.
        let words = a.bits().max(b.bits()) / 64 + difference / 19;
        work.burn(40 + 8 * words + many_digits(words))?;
        let digits = a * ten_to(a_exponent - exponent) + b * ten_to(b_exponent - exponent);
        Ok(Self::Large { digits, exponent })
    }

    /// The sum, if both numbers and the sum are small.
    fn small_plus(&self, other: &Self) -> Option<Self> {
        let (
            Self::Small {
                digits: a,
                exponent,
            },
            Self::Small {
                digits: b,
                exponent: other_exponent,
            },
        ) = (self, other)
        else {
            return None;
        };
        if *b == 0 {
            return Some(self.clone());
        }
        if *a == 0 {
            return Some(other.clone());
        }
        let least = *exponent.min(other_exponent);
        let scaled = |digits: i64, exponent: i64| {
            let power = u32::try_from(exponent - least).ok()?;
            digits.checked_mul(10_i64.checked_pow(power)?)
        };
        let digits = scaled(*a, *exponent)?.checked_add(scaled(*b, *other_exponent)?)?;
        Some(Self::Small {
            digits,
            exponent: least,
        })
    }

    fn order(&self, other: &Self) -> Ordering {
        let sign = self.sign();
        if sign != other.sign() {
            return sign.cmp(&other.sign());
        }
        if sign == Ordering::Equal {
            return sign;
        }
        let ((a, a_exponent), (b, b_exponent)) = (self.parts(), other.parts());
        let larger = (length(&a) + a_exponent).cmp(&(length(&b) + b_exponent));
        if larger != Ordering::Equal {
            return if sign == Ordering::Less {
                larger.reverse()
            } else {
                larger
            };
        }
        // Both have the same magnitude, so aligning them adds no more digits than they have.
        let exponent = a_exponent.min(b_exponent);
        (a * ten_to(a_exponent - exponent)).cmp(&(b * ten_to(b_exponent - exponent)))
    }
}

/// Go's `math.Pow10`: the product or quotient of two powers of ten, which may round differently than one literal.
fn power_of_ten(exponent: i64) -> f64 {
    let entry = |power: i64| format!("1e{power}").parse().unwrap_or(f64::NAN);
    match exponent {
        0..=308 => entry(exponent / 32 * 32) * entry(exponent % 32),
        -323..=-1 => entry(exponent / 32 * 32) / entry(-exponent % 32),
        309.. => f64::INFINITY,
        _ => 0.0,
    }
}

/// Parses a quantity.
///
/// # Errors
///
/// The original's message.
fn parse(text: &str) -> Result<Amount, String> {
    let read = QuantityText::read(text).map_err(|why| why.to_string())?;
    if let Some(small) = read.small() {
        let (digits, exponent) = (small.digits, small.exponent);
        return Ok(Amount::Small { digits, exponent });
    }
    let written = format!("{}{}", read.whole, read.fraction);
    let mut digits: BigInt = written
        .parse()
        .map_err(|_| QuantityError::Number.to_string())?;
    let fraction = i64::try_from(read.fraction.len()).unwrap_or(i64::MAX);
    let mut exponent = -fraction;
    if read.is_binary() {
        digits <<= read.exponent;
    } else {
        exponent = read.exponent.saturating_sub(fraction);
    }
    if sign_of(&digits) != Ordering::Equal {
        digits = rounded_up(digits, exponent)?;
        exponent = NANO;
    }
    if read.is_binary() {
        let most = BigInt::from(i64::MAX) * ten_to(-NANO);
        if exponent == NANO && digits > most {
            (digits, exponent) = (BigInt::from(i64::MAX), 0);
        }
    }
    if read.negative {
        digits = -digits;
    }
    Ok(Amount::Large { digits, exponent })
}

/// The multiple of `10^NANO` that `digits · 10^exponent` is rounded up to; `digits` must be positive.
fn rounded_up(digits: BigInt, exponent: i64) -> Result<BigInt, String> {
    let shift = exponent - NANO;
    if shift >= 0 {
        if shift > MOST_DIGITS {
            return Err(TOO_MANY_DIGITS.to_owned());
        }
        return Ok(digits * ten_to(shift));
    }
    if -shift > length(&digits) {
        return Ok(BigInt::from(1));
    }
    let divisor = ten_to(-shift);
    Ok((digits + &divisor - 1) / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(of: &str) -> String {
        parse(of).map_or_else(|why| why, |value| value.print())
    }

    #[test]
    fn quantities_are_exact() {
        assert_eq!(text_of("1.5Gi"), "1610612736e0");
        assert_eq!(
            text_of("123456789012345678901234567890"),
            "12345678901234567890123456789e1"
        );
        assert_eq!(text_of("0.0000000001"), "1e-9");
        assert_eq!(text_of("10Ei"), "9223372036854775807e0");
        assert_eq!(text_of("1e2147483648"), "1e-9");
        assert_eq!(text_of("."), "0e0");
        assert_eq!(text_of("1Zi"), QuantityError::Format.to_string());
        assert_eq!(text_of("1mm"), "unable to parse quantity's suffix");
    }

    #[test]
    fn numbers_of_very_different_size_are_compared_at_once() {
        let (large, small) = (
            parse("1e2147483647").unwrap(),
            parse("-1e2147483647").unwrap(),
        );
        assert_eq!(large.order(&parse("1").unwrap()), Ordering::Greater);
        assert_eq!(small.order(&parse("1n").unwrap()), Ordering::Less);
        let mut work = CelWork::new(1_000, None);
        assert!(large.plus(&parse("1").unwrap(), &mut work).is_err());
    }

    #[test]
    fn a_sum_of_many_digits_takes_steps_for_them() {
        let one = parse("1").unwrap();
        for (text, is_within) in [("5", true), ("1e60", true), ("1e99999", false)] {
            let large = parse(text).unwrap();
            for sum in [
                large.plus(&one, &mut CelWork::new(1_000, None)),
                one.minus(&large, &mut CelWork::new(1_000, None)),
            ] {
                assert_eq!(sum.is_ok(), is_within, "{text}");
            }
        }
    }

    #[test]
    fn the_smallest_integer_can_be_subtracted() {
        let (digits, exponent) = (i64::MIN, 0);
        let smallest = Amount::Small { digits, exponent };
        let difference = parse("1000m").unwrap();
        let difference = difference.minus(&smallest, &mut CelWork::new(1_000, None));
        let difference = difference.unwrap();
        assert_eq!(difference.print(), "9223372036854775809e0");
    }
}
