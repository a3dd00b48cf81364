// SPDX-License-Identifier: GPL-2.0-only
//! The full screen: a table that renews itself, and keys.

use super::table::{self, Column, fitted, shown};
use super::{Order, Row, Sample, Sampler, View};
use crate::output;
use corun_model::{Nanos, time};
use corun_system::signals;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use ratatui::{Frame, TerminalOptions, Viewport};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KEYS: &str = "\
q, Esc   end                     Space    look now
v        by VM or by vCPU        n        shares per vCPU or summed
+ -      look less, more often   arrows   scroll
order:   r %RDY  u %RUN  c %CSTP  t %MLMTD  s SW/S  l LAT  w WEIGHT  a NAME
h        these keys";

/// %RDY from which on a line is marked: operators take the first for a warning, the second for trouble.
const WARNING: f64 = 0.05;
const TROUBLE: f64 = 0.10;

/// Runs until `q`, or for `count` looks.
pub(super) fn run(
    sampler: &Sampler,
    view: View,
    delay: Nanos,
    count: Option<u64>,
) -> anyhow::Result<()> {
    let first = sampler.sample();
    let mut screen = Screen {
        view,
        delay,
        then: first.clone(),
        now: first,
        offset: 0,
        aside: 0,
        help: false,
    };
    // This comes before any change that would have to be taken back.
    let asked = signals::watch()?;
    let options = TerminalOptions {
        viewport: Viewport::Fixed(area()),
    };
    let mut terminal = ratatui::try_init_with_options(options)?;
    let entered = execute!(io::stdout(), EnterAlternateScreen);
    let ended = match entered {
        Ok(()) => screen.serve(sampler, &mut terminal, count, &asked),
        Err(cause) => Err(cause.into()),
    };
    // If the terminal is gone, nobody is left to be told.
    let _ = ratatui::try_restore();
    match asked.load(Ordering::Relaxed) {
        true => Ok(()),
        false => ended,
    }
}

/// What is drawn on: serial consoles do not know how large they are.
fn area() -> Rect {
    let (columns, rows) = terminal::size().unwrap_or_default();
    sized(columns, rows, output::width())
}

fn sized(columns: u16, rows: u16, otherwise: u16) -> Rect {
    let or = |size: u16, otherwise: u16| if size == 0 { otherwise } else { size };
    Rect::new(0, 0, or(columns, otherwise), or(rows, 24))
}

/// How long a signal may go unnoticed: one that asks to end must not leave the terminal as it is.
const HEED: Duration = Duration::from_millis(100);

struct Screen {
    view: View,
    delay: Nanos,
    then: Sample,
    now: Sample,
    offset: usize,
    /// Columns that are scrolled out on the left.
    aside: usize,
    help: bool,
}

/// What a key was for.
#[derive(PartialEq, Eq)]
enum Then {
    End,
    Look,
    Show,
}

impl Screen {
    fn serve(
        &mut self,
        sampler: &Sampler,
        terminal: &mut ratatui::DefaultTerminal,
        count: Option<u64>,
        asked: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut left = count;
        let mut looked = Instant::now();
        loop {
            if terminal.get_frame().area() != area() {
                terminal.resize(area())?;
            }
            terminal.draw(|frame| self.draw(frame))?;
            let due = looked + Duration::from_nanos(self.delay);
            let key = loop {
                if asked.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let left = due.saturating_duration_since(Instant::now());
                if event::poll(left.min(HEED))? {
                    break event::read()?;
                }
                if left <= HEED {
                    break Event::FocusGained; // no event: it is time to look
                }
            };
            let then = match key {
                Event::Key(key) if key.kind == KeyEventKind::Press => self.key(key),
                _ => Then::Show,
            };
            if then == Then::End {
                return Ok(());
            }
            if then == Then::Look || Instant::now() >= due {
                if left == Some(0) {
                    return Ok(());
                }
                left = left.map(|left| left - 1);
                let now = sampler.sample();
                self.then = std::mem::replace(&mut self.now, now);
                looked = Instant::now();
            }
        }
    }

    fn key(&mut self, key: KeyEvent) -> Then {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Then::End,
            KeyCode::Char('c') if control => return Then::End,
            KeyCode::Char(' ') => return Then::Look,
            KeyCode::Char('v') => self.view.vcpus ^= true,
            KeyCode::Char('n') => self.view.sum ^= true,
            KeyCode::Char('h' | '?') => self.help ^= true,
            KeyCode::Char('+') => self.delay = (self.delay * 2).min(3600 * time::SEC),
            KeyCode::Char('-') => self.delay = (self.delay / 2).max(100 * time::MS),
            KeyCode::Down => self.offset += 1,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            KeyCode::PageDown => self.offset += 10,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(10),
            KeyCode::Right => self.aside += 1,
            KeyCode::Left => self.aside = self.aside.saturating_sub(1),
            KeyCode::Home => (self.offset, self.aside) = (0, 0),
            KeyCode::Char(letter) => {
                let order = Order::ALL.iter().find(|(_, key, _)| *key == letter);
                self.view.order = order.map_or(self.view.order, |(_, _, order)| *order);
            }
            _ => {}
        }
        Then::Show
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let help = if self.help { 5 } else { 0 };
        let parts = [
            Constraint::Length(2),
            Constraint::Length(help),
            Constraint::Length(1),
            Constraint::Min(0),
        ];
        let [title, keys, head, body] = Layout::vertical(parts).areas(frame.area());
        let rows = self.view.rows(&self.then, &self.now);
        self.offset = self.offset.min(rows.len().saturating_sub(1));
        frame.render_widget(Paragraph::new(self.title()), title);
        frame.render_widget(Paragraph::new(KEYS).dim(), keys);
        let width = usize::from(head.width);
        let all = table::columns(self.view.vcpus).len();
        self.aside = self.aside.min(all.saturating_sub(2));
        let columns = shown(
            self.view.vcpus,
            width,
            self.aside,
            table::longest_name(&rows),
        );
        let cells = columns.iter().map(|column| fitted(column, column.head));
        let names = format!("{:<width$}", cells.collect::<Vec<_>>().join(" "));
        frame.render_widget(Paragraph::new(names).reversed(), head);
        let lines: Vec<Line<'_>> = rows
            .iter()
            .skip(self.offset)
            .map(|row| self.line(row, &columns))
            .collect();
        let nothing = match lines.is_empty() {
            true => "no VMs that were there at the look before",
            false => "",
        };
        let text = match nothing {
            "" => Text::from(lines),
            nothing => Text::from(nothing),
        };
        frame.render_widget(Paragraph::new(text), body);
    }

    fn title(&self) -> Text<'_> {
        let order = Order::ALL
            .iter()
            .find(|(_, _, order)| *order == self.view.order);
        let order = order.map_or("", |(name, ..)| name);
        let shares = match self.view.sum {
            true => "summed over vCPUs",
            false => "per vCPU",
        };
        let delay = self.delay as f64 / time::SEC as f64;
        let mut how = format!("every {delay} s, by {order}, shares {shares}; h: keys");
        for note in self.now.daemon.iter().flat_map(|daemon| &daemon.notes) {
            how += &format!("; {note}");
        }
        let lines = [
            Line::from(table::title(&self.now)).bold(),
            Line::from(how).dim(),
        ];
        Text::from_iter(lines)
    }

    fn line(&self, row: &Row, columns: &[Column]) -> Line<'static> {
        let cells = columns
            .iter()
            .map(|column| fitted(column, &(column.cell)(row)));
        let text = cells.collect::<Vec<_>>().join(" ");
        let per_vcpu = match (self.view.sum, row.vcpu) {
            (true, None) => row.ready / row.vcpus.max(1) as f64,
            _ => row.ready,
        };
        let style = match per_vcpu {
            share if share >= TROUBLE => Style::new().fg(Color::Red),
            share if share >= WARNING => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        };
        Line::styled(text, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::path::Path;

    fn screen() -> Screen {
        let none = Sampler::below(Path::new("/nowhere")).sample();
        Screen {
            view: View {
                vcpus: false,
                sum: false,
                order: Order::Ready,
            },
            delay: 2 * time::SEC,
            then: none.clone(),
            now: none,
            offset: 0,
            aside: 0,
            help: false,
        }
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Then {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Char('v'));
        press(&mut screen, KeyCode::Char('l'));
        press(&mut screen, KeyCode::Char('+'));
        assert!(screen.view.vcpus && screen.view.order == Order::Latency);
        assert_eq!(screen.delay, 4 * time::SEC);
        assert!(press(&mut screen, KeyCode::Char('q')) == Then::End);
        assert!(press(&mut screen, KeyCode::Char(' ')) == Then::Look);
        for (_, key, _) in Order::ALL {
            assert!(
                KEYS.contains(&format!(" {key} ")),
                "{key} is not in the help"
            );
        }
    }

    #[test]
    fn a_terminal_without_a_size_has_one() {
        assert_eq!(sized(0, 0, 80), Rect::new(0, 0, 80, 24));
        assert_eq!(sized(40, 0, 80), Rect::new(0, 0, 40, 24));
        assert_eq!(sized(132, 50, 80), Rect::new(0, 0, 132, 50));
    }

    #[test]
    fn it_is_drawn_however_small_the_terminal() {
        for (width, height) in [(1, 1), (20, 3), (120, 40)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let mut screen = screen();
            screen.help = true;
            screen.offset = 99;
            terminal.draw(|frame| screen.draw(frame)).unwrap();
            let text = terminal.backend().to_string();
            assert!(
                width < 100 || text.contains("%RDY") && text.contains("no VMs"),
                "{text}"
            );
        }
    }
}
