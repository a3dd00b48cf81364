// SPDX-License-Identifier: GPL-2.0-only
//! Why conflicts between gangs must be resolved: two applications on four cores (dissertation, §4.3,
//! Fig. 4.2).
//!
//! Each application has four threads, thread i on core i. Its main thread generates tasks for some
//! time, then the others do them, then the iteration is over. Where both want a core, one of them
//! has to wait; which one decides how long both iterations take. The lengths of tasks are drawn in
//! the figure, but not stated; those here are the ones that fit all of its text: a reconstruction.

/// Cores, and threads of each application.
pub const CORES: usize = 4;

/// An application's iteration, in units of time.
#[derive(Clone, Copy, Debug)]
pub struct App {
    /// The thread that generates the tasks.
    pub main: usize,
    /// For so long.
    pub generates: u32,
    /// Then each thread's task; the main thread has none.
    pub tasks: [u32; CORES],
}

/// App1 of the figure: thread 1 generates for a unit.
pub const APP_1: App = App {
    main: 1,
    generates: 1,
    tasks: [2, 0, 1, 4],
};

/// App2: thread 0 generates for two.
pub const APP_2: App = App {
    main: 0,
    generates: 2,
    tasks: [0, 4, 4, 1],
};

/// Which application, 0 or 1, ran on a core in each unit of time, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// By core.
    pub cores: [Vec<Option<usize>>; CORES],
}

/// What is left of an application's threads.
struct Left {
    generates: u32,
    tasks: [u32; CORES],
}

impl Left {
    fn wants(&self, app: &App, core: usize) -> bool {
        match self.generates {
            0 => self.tasks[core] > 0,
            _ => core == app.main,
        }
    }

    /// A unit of time passes in which `ran` tells whether it had the core.
    fn pass(&mut self, app: &App, ran: [bool; CORES]) {
        if self.generates > 0 {
            self.generates -= u32::from(ran[app.main]);
            return;
        }
        for (task, ran) in self.tasks.iter_mut().zip(ran) {
            *task -= u32::from(ran);
        }
    }
}

/// One iteration of both; where they want the same core, `first[core]` has it.
pub fn schedule(apps: [App; 2], first: [usize; CORES]) -> Schedule {
    let mut left = apps.map(|app| Left {
        generates: app.generates,
        tasks: app.tasks,
    });
    let mut schedule = Schedule::default();
    loop {
        let runs: [Option<usize>; CORES] = std::array::from_fn(|core| {
            let preferred = first[core] % 2;
            [preferred, 1 - preferred]
                .into_iter()
                .find(|&app| left[app].wants(&apps[app], core))
        });
        if runs.iter().all(Option::is_none) {
            return schedule;
        }
        for (number, left) in left.iter_mut().enumerate() {
            left.pass(&apps[number], runs.map(|app| app == Some(number)));
        }
        for (core, app) in schedule.cores.iter_mut().zip(runs) {
            core.push(app);
        }
    }
}

/// Fig. 4.2 (b): App1 has every core it wants, the conflict on core 0 included.
pub fn unresolved() -> Schedule {
    schedule([APP_1, APP_2], [0; CORES])
}

/// Fig. 4.2 (c): the conflict on core 0 is resolved in favour of App2's main thread.
pub fn resolved() -> Schedule {
    schedule([APP_1, APP_2], [1, 0, 0, 0])
}

impl Schedule {
    /// Units of time until both iterations are over.
    pub fn length(&self) -> usize {
        self.cores.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Context switches on a core, from one application's thread to the other's.
    pub fn switches(&self, core: usize) -> usize {
        let ran: Vec<usize> = self.cores[core].iter().copied().flatten().collect();
        ran.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// When an application's last thread has finished.
    pub fn finish(&self, app: usize) -> usize {
        let last = |core: &Vec<Option<usize>>| core.iter().rposition(|ran| *ran == Some(app));
        let last = self.cores.iter().filter_map(last).max();
        last.map_or(0, |at| at + 1)
    }

    /// When App1 can begin a second iteration where its main thread is: the first is over, and the
    /// core is free.
    pub fn second_iteration(&self) -> usize {
        let over = self.finish(0);
        let core = &self.cores[APP_1.main];
        let busy = core.iter().rposition(Option::is_some);
        over.max(busy.map_or(0, |at| at + 1))
    }

    /// The cores that are free from a time on.
    pub fn free_from(&self, time: usize) -> Vec<usize> {
        let free = |&core: &usize| self.cores[core].iter().skip(time).all(Option::is_none);
        (0..CORES).filter(free).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight units of time or six, two context switches on core 0 or one.
    #[test]
    fn resolving_the_conflict_shortens_the_schedule() {
        let (b, c) = (unresolved(), resolved());
        assert_eq!((b.length(), c.length()), (8, 6));
        assert_eq!((b.switches(0), c.switches(0)), (2, 1));
    }

    /// "Thread 0 of App1 … can finish its task before time is 5": thread 3 cannot before.
    #[test]
    fn thread_0_of_app1_has_slack_until_5() {
        assert_eq!((unresolved().finish(0), resolved().finish(0)), (5, 5));
        let own = resolved().cores[0].iter().rposition(|ran| *ran == Some(0));
        assert_eq!(own, Some(3));
    }

    /// "The second iteration of App1 can start from time is 6, but in (b) … only when thread 1 of
    /// App2 is migrated to core 0 or core 3": those are free then.
    #[test]
    fn app1_goes_on_at_6() {
        assert_eq!(resolved().second_iteration(), 6);
        assert_eq!(unresolved().second_iteration(), 8);
        assert_eq!(unresolved().free_from(6), [0, 3]);
    }
}
