//! What stands in the file about targets: how fast, how many at a time, and when one is taken for down.

use std::collections::HashMap;
use std::time::Duration;

use oncegate_connect::TargetName;
use oncegate_core::lane::{BreakerRules, Rate};
use oncegate_core::limits;
use oncegate_core::policy::show_duration;
use oncegate_runner::targets::TargetRules;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::file::{Members, Period};
use super::{At, ConfigError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetFile {
    #[serde(default)]
    rate: Option<Spanned<String>>,
    #[serde(default)]
    concurrency: Option<Spanned<usize>>,
    #[serde(default)]
    breaker: BreakerFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakerFile {
    #[serde(default)]
    failures: Option<Spanned<u32>>,
    #[serde(default)]
    pause: Option<Spanned<Period>>,
    #[serde(default)]
    pause_max: Option<Spanned<Period>>,
}

pub(super) fn targets(
    file: &Members<TargetFile>,
    at: At<'_>,
) -> Result<HashMap<TargetName, TargetRules>, ConfigError> {
    let mut targets = HashMap::new();
    for (name, declared) in file {
        let target = TargetName::parse(&name.value).map_err(|e| at(name.referenced, e))?;
        if targets.insert(target, rules(declared, at)?).is_some() {
            let message = format!("`{}` is declared twice, spelt otherwise; merge the two", name.value);
            return Err(at(name.referenced, message));
        }
    }
    Ok(targets)
}

fn rules(declared: &TargetFile, at: At<'_>) -> Result<TargetRules, ConfigError> {
    let rate =
        declared.rate.as_ref().map(|rate| Rate::parse(&rate.value).map_err(|e| at(rate.referenced, e)));
    if let Some(concurrency) = declared.concurrency.as_ref().filter(|c| c.value == 0) {
        let message = "concurrency must be at least 1; pause an automation to send nothing";
        return Err(at(concurrency.referenced, message.to_owned()));
    }
    Ok(TargetRules {
        rate: rate.transpose()?,
        concurrency: declared.concurrency.as_ref().map(|concurrency| concurrency.value),
        breaker: breaker(&declared.breaker, at)?,
    })
}

fn breaker(declared: &BreakerFile, at: At<'_>) -> Result<BreakerRules, ConfigError> {
    let mut rules = BreakerRules::default();
    if let Some(failures) = &declared.failures {
        if failures.value == 0 {
            let message =
                "breaker.failures must be at least 1; a large number makes a breaker that hardly ever opens";
            return Err(at(failures.referenced, message.to_owned()));
        }
        rules.failures = failures.value;
    }
    let pause = |name: &str, declared: &Spanned<Period>| {
        let Period(pause) = declared.value;
        match (Duration::from_secs(1)..=limits::BREAKER_PAUSE_MAX).contains(&pause) {
            true => Ok(pause),
            false => Err(at(
                declared.referenced,
                format!(
                    "breaker.{name} of {} is outside 1s to {}",
                    show_duration(pause),
                    show_duration(limits::BREAKER_PAUSE_MAX)
                ),
            )),
        }
    };
    if let Some(declared) = &declared.pause {
        rules.pause = pause("pause", declared)?;
        rules.pause_max = rules.pause_max.max(rules.pause);
    }
    if let Some(declared) = &declared.pause_max {
        rules.pause_max = pause("pause_max", declared)?;
        if rules.pause_max < rules.pause {
            let message = format!(
                "breaker.pause_max is shorter than the first pause of {}; raise it, or lower `pause`",
                show_duration(rules.pause)
            );
            return Err(at(declared.referenced, message));
        }
    }
    Ok(rules)
}
