// A burst that waits until it is served: what one node can do, and what its clients wait.
import http from "k6/http";

const { URL, RATE = 20, SECONDS = 10 } = __ENV;

export const options = {
  scenarios: {
    burst: {
      executor: "constant-arrival-rate",
      rate: Number(RATE),
      duration: `${SECONDS}s`,
      gracefulStop: "120s",
      preAllocatedVUs: Number(RATE) * Number(SECONDS),
    },
  },
  summaryTrendStats: ["avg", "p(95)", "count"],
};

// 5 to 15 ms of CPU time, and two in a hundred ten times that.
export default function () {
  const cpuMs = (5 + 10 * Math.random()) * (Math.random() < 0.02 ? 10 : 1);
  http.get(`${URL}/work?cpu_ms=${cpuMs.toFixed(2)}`, { timeout: "120s", tags: { name: "work" } });
}
