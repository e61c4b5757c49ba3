// A dashboard of a recording, drawn on Grafana's grid.
import { createTheme, DataFrame, dateTime, EventBusSrv, TimeRange } from '@grafana/data';
import { GlobalStyles, PanelChrome, PanelContextProvider, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { Series } from './frames';
import { registerTransformations } from './fields';
import { framesOf, Mark, Panel, picture, Surroundings } from './panels';

export interface Drawing {
  dashboard: { title: string; panels: Panel[] };
  // By the panel's number and the query's letter.
  answers: Record<string, Record<string, Series[]>>;
  marks: Array<{ name: string; color: string; from: number; to: number }>;
  from: number;
  to: number;
  step: number;
  width: number;
  theme: 'light' | 'dark';
}

// Grafana's grid.
const COLUMNS = 24;
const CELL = 30;
const GAP = 8;

declare global {
  interface Window {
    draw: (drawing: Drawing) => Promise<void>;
  }
}

function Dashboard({ drawing, around, frames }: { drawing: Drawing; around: Surroundings; frames: DataFrame[][] }) {
  const column = (drawing.width - GAP) / COLUMNS;
  const { panels, title } = drawing.dashboard;
  const rows = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const span = [around.range.from, around.range.to].map((at) => at.utc().format('HH:mm:ss')).join(' to ');
  return (
    <>
      <header style={{ display: 'flex', justifyContent: 'space-between', padding: `${GAP}px ${GAP}px 0` }}>
        <strong>{title}</strong>
        <span>{span} UTC</span>
      </header>
      <main style={{ position: 'relative', width: drawing.width, height: rows * (CELL + GAP) + GAP }}>
        {panels.map((panel, at) => {
          const { x, y, w, h } = panel.gridPos;
          const [width, height] = [w * column - GAP, h * (CELL + GAP) - GAP];
          const place = { position: 'absolute', left: GAP + x * column, top: GAP + y * (CELL + GAP) } as const;
          return (
            <section key={panel.id} style={{ ...place, width, height }}>
              {panel.type === 'row' ? (
                <h5>{panel.title}</h5>
              ) : (
                <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
                  {(innerWidth, innerHeight) => picture(panel, frames[at], around, innerWidth, innerHeight)}
                </PanelChrome>
              )}
            </section>
          );
        })}
      </main>
    </>
  );
}

window.draw = async (drawing) => {
  const theme = createTheme({ colors: { mode: drawing.theme } });
  const [from, to] = [dateTime(drawing.from * 1000), dateTime(drawing.to * 1000)];
  const range: TimeRange = { from, to, raw: { from, to } };
  const marks: Mark[] = drawing.marks.map(({ color, from, to }) => ({ color, from: from * 1000, to: to * 1000 }));
  const around = { range, stepMs: drawing.step * 1000, theme, marks };
  registerTransformations();
  const frames = await Promise.all(
    drawing.dashboard.panels.map((panel) => framesOf(panel, drawing.answers[panel.id] ?? {}, around))
  );
  const eventBus = new EventBusSrv();
  createRoot(document.getElementById('root')!).render(
    <ThemeContext.Provider value={theme}>
      <PanelContextProvider value={{ eventsScope: '', eventBus }}>
        <GlobalStyles />
        <Dashboard drawing={drawing} around={around} frames={frames} />
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
};
