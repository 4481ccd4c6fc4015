//! [`TuiMetricsRenderer`]: a dashboard on a terminal.

mod dashboard;
mod draw;

use super::{
    CliMetricsRenderer, EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, TrainingProgress,
};
use crate::metric::store::Split;
use crate::{LearnerSummary, TrainingInterrupter};
use dashboard::{Dashboard, Request};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(100);

/// Shows progress, metrics and their plots on a terminal. The arrow keys choose what is plotted; `q` ends the training after
/// its step, a second time the program.
///
/// The terminal is as it was before when the training is over, however it ends.
pub struct TuiMetricsRenderer {
    dashboard: Arc<Mutex<Dashboard>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Evaluations are shown as lines, once the dashboard is closed.
    lines: CliMetricsRenderer,
}

impl TuiMetricsRenderer {
    /// On the terminal of the standard output.
    ///
    /// # Errors
    /// When it cannot be used so.
    pub fn new(interrupter: impl Into<TrainingInterrupter>) -> io::Result<Self> {
        let interrupter = interrupter.into();
        let terminal = ratatui::try_init()?;
        let dashboard = Arc::new(Mutex::new(Dashboard::new()));
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (dashboard, over) = (dashboard.clone(), over.clone());
            thread::spawn(move || {
                // Without a terminal that can be drawn on, the training goes on unseen.
                if show(terminal, &dashboard, &over, &interrupter).is_err() {
                    // What is printed from now on is for a terminal as others leave it.
                    ratatui::restore();
                }
            })
        };
        Ok(Self { dashboard, over, thread: Some(thread), lines: CliMetricsRenderer::new() })
    }

    fn dashboard(&self) -> MutexGuard<'_, Dashboard> {
        self.dashboard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the terminal back.
    fn close(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.over.store(true, Ordering::Relaxed);
        // A picture that failed is no reason to fail.
        let _ = thread.join();
        ratatui::restore();
    }
}

/// Draws and listens until the training is over.
fn show(
    mut terminal: DefaultTerminal,
    dashboard: &Mutex<Dashboard>,
    over: &AtomicBool,
    interrupter: &TrainingInterrupter,
) -> io::Result<()> {
    let locked = || dashboard.lock().unwrap_or_else(PoisonError::into_inner);
    while !over.load(Ordering::Relaxed) {
        terminal.draw(|frame| draw::draw(frame, &locked()))?;
        if !event::poll(FRAME)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        match request(key).map(|request| locked().answer(request)) {
            Some(dashboard::Answer::Interrupt) => interrupter.stop(),
            Some(dashboard::Answer::Quit) => {
                ratatui::restore();
                // As a program that ends by an interrupt from the keyboard.
                std::process::exit(130);
            }
            Some(dashboard::Answer::Redraw) | None => {}
        }
    }
    Ok(())
}

/// What a key asks for.
fn request(key: KeyEvent) -> Option<Request> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Right | KeyCode::Down | KeyCode::Tab => Some(Request::Next),
        KeyCode::Left | KeyCode::Up | KeyCode::BackTab => Some(Request::Previous),
        KeyCode::Char('q') | KeyCode::Esc => Some(Request::Stop),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Request::Stop),
        _ => None,
    }
}

impl MetricsRenderer for TuiMetricsRenderer {
    fn update_train(&mut self, state: MetricState) {
        self.dashboard().update(Split::Train, state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.dashboard().update(Split::Valid, state);
    }

    fn render_train(&mut self, item: TrainingProgress) {
        self.dashboard().advance(Split::Train, item);
    }

    fn render_valid(&mut self, item: TrainingProgress) {
        self.dashboard().advance(Split::Valid, item);
    }

    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        self.close();
        super::print_summary(summary)
    }

    fn update_test(&mut self, name: EvaluationName, state: MetricState) {
        self.lines.update_test(name, state);
    }

    fn render_test(&mut self, item: EvaluationProgress) {
        self.close();
        self.lines.render_test(item);
    }

    fn manual_close(&mut self) {
        self.close();
    }
}

impl Drop for TuiMetricsRenderer {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let plain = |code| request(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Right), Some(Request::Next));
        assert_eq!(plain(KeyCode::Up), Some(Request::Previous));
        assert_eq!(plain(KeyCode::Char('q')), Some(Request::Stop));
        assert_eq!(plain(KeyCode::Char('c')), None);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(request(interrupt), Some(Request::Stop));
    }
}
