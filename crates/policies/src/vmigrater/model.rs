// SPDX-License-Identifier: GPL-2.0-only
//! The analytic model of vMigrater's speed-up (ATC 2018, §3.5; dissertation §2.4.4, Eqs. 1–3).
//!
//! With `n` vCPUs per pCPU, an I/O task is active for one slice in `n`; if it is moved to another vCPU whenever its own
//! is descheduled, it is always active except for its migrations. Both papers assume that at least one vCPU of the VM
//! is active at any time, and that without vMigrater the task takes exactly `n` times as long. Nothing here decides
//! anything. Times in ns, as `f64`.

/// What a run consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// N: vCPUs per pCPU.
    pub n: f64,
    /// T_ns: its time without sharing.
    pub alone: f64,
    /// N_migrate: migrations.
    pub migrations: f64,
    /// C_avg: what each costs the task.
    pub cost: f64,
}

impl Run {
    /// Eq. 1: how many times as fast as without vMigrater.
    pub fn speedup(&self) -> f64 {
        self.n / (1.0 + self.migrations * self.cost / self.alone)
    }

    /// P as the dissertation defines it: N_migrate · C_avg / (N_min · T_ts), with slices of `slice`.
    pub fn p_dissertation(&self, slice: f64) -> f64 {
        self.migrations * self.cost / (least_migrations(self.alone, slice) * slice)
    }

    /// P as the ATC paper defines it: N_migrate / N_min.
    pub fn p_atc(&self, slice: f64) -> f64 {
        self.migrations / least_migrations(self.alone, slice)
    }
}

/// Eq. 2 of the dissertation: N_min = T_ns / T_ts, one migration at the end of each slice.
pub fn least_migrations(alone: f64, slice: f64) -> f64 {
    alone / slice
}

/// Eq. 3 of the dissertation (2 of the ATC paper): the speed-up by its P.
pub fn speedup_by_p(n: f64, p: f64) -> f64 {
    n / (1.0 + p)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// HDFS of Table 2.3.
    const HDFS: Run = Run {
        n: 2.0,
        alone: 3181.0 * 11.0 * MS,
        migrations: 3363.0,
        cost: 0.87 * MS,
    };

    #[test]
    fn the_equations_are_one() {
        let p = HDFS.p_dissertation(11.0 * MS);
        assert!((HDFS.speedup() - speedup_by_p(2.0, p)).abs() < 1e-12);
        assert!((HDFS.speedup() - 1.846).abs() < 5e-4);
        assert!((HDFS.p_atc(11.0 * MS) - 1.057).abs() < 5e-4);
    }

    #[test]
    fn free_migrations_give_n_and_each_one_costs() {
        for n in [1.0, 2.0, 8.0] {
            let free = Run {
                n,
                cost: 0.0,
                ..HDFS
            };
            assert_eq!(free.speedup(), n);
            let more = Run {
                migrations: 2.0 * HDFS.migrations,
                n,
                ..HDFS
            };
            assert!(more.speedup() < Run { n, ..HDFS }.speedup());
        }
    }
}
