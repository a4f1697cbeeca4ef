//! Texts of `policy`: budgets.

use super::TypeTexts;

pub(super) static TEXTS: &[TypeTexts] = &[
    (
        "policy",
        "PodDisruptionBudget",
        "PodDisruptionBudget limits how many pods of a set may be disrupted at once.",
        &[
            ("metadata", "Standard object metadata."),
            ("spec", "The desired budget."),
            ("status", "The most recently observed state."),
        ],
    ),
    (
        "policy",
        "PodDisruptionBudgetSpec",
        "PodDisruptionBudgetSpec describes a budget.",
        &[
            (
                "minAvailable",
                "How many of the selected pods, as a number or a percentage, must stay available after an eviction.",
            ),
            (
                "selector",
                "Selects the pods of the budget. A null selector selects no pods, an empty one ({}) all pods of the namespace.",
            ),
            (
                "maxUnavailable",
                "How many of the selected pods, as a number or a percentage, may be unavailable after an eviction.",
            ),
            (
                "unhealthyPodEvictionPolicy",
                "When running pods that are not ready may be evicted: IfHealthyBudget or AlwaysAllow.",
            ),
        ],
    ),
    (
        "policy",
        "PodDisruptionBudgetStatus",
        "PodDisruptionBudgetStatus is the observed state of a budget.",
        &[
            (
                "observedGeneration",
                "The generation of the budget that the status was computed from.",
            ),
            (
                "disruptedPods",
                "Pods whose eviction was granted but that were not yet observed as deleted.",
            ),
            (
                "disruptionsAllowed",
                "Number of pods that may be disrupted now.",
            ),
            ("currentHealthy", "Number of healthy pods."),
            ("desiredHealthy", "Minimum desired number of healthy pods."),
            (
                "expectedPods",
                "Total number of pods that the budget counts.",
            ),
            ("conditions", "Conditions of the budget."),
        ],
    ),
];
