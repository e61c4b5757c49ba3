// An HTTP service on net/http with Prometheus's client, whose requests take CPU time.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
)

const (
	maxCPUMs      = 1000
	shutdownGrace = 2 * time.Second
)

var (
	duration = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "http_request_duration_seconds",
		Help: "Time in the handler.",
	}, []string{"code", "method"})
	inFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "http_requests_in_flight",
		Help: "Requests in the handler.",
	})
)

func threadCPU() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// burn hashes until it has had this much CPU time.
func burn(want time.Duration) (sum [sha256.Size]byte) {
	// The thread's clock is the request's as long as nothing else runs on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadCPU() + want; threadCPU() < end; {
		for range 256 {
			sum = sha256.Sum256(sum[:])
		}
	}
	return sum
}

func work(w http.ResponseWriter, r *http.Request) {
	cpuMs, err := strconv.ParseFloat(r.URL.Query().Get("cpu_ms"), 64)
	if err != nil || !(cpuMs > 0 && cpuMs <= maxCPUMs) {
		http.Error(w, fmt.Sprintf("cpu_ms must be above 0, and at most %d", maxCPUMs), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%x\n", burn(time.Duration(cpuMs*float64(time.Millisecond))))
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to serve on")
	flag.Parse()

	mux := http.NewServeMux()
	mux.Handle("GET /work", promhttp.InstrumentHandlerInFlight(inFlight,
		promhttp.InstrumentHandlerDuration(duration, http.HandlerFunc(work))))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /metrics", promhttp.Handler())
	server := &http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	end, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-end.Done()
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			log.Print(err)
		}
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-ended
}
