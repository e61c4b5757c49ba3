// A reverse proxy that limits each node by one of failsafe-go's policies, and does nothing else.
//
// It takes a request to the node with the fewest in flight that admits it, and answers 503 where none does.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	library       = "github.com/failsafe-go/failsafe-go"
	shutdownGrace = 2 * time.Second
	// As HAProxy's in haproxy/examples.
	connectTimeout = 500 * time.Millisecond
)

type config struct {
	Listen string            `json:"listen"`
	Admin  string            `json:"admin"`
	Nodes  map[string]string `json:"nodes"`
	Policy string            `json:"policy"`
	// Parameters of the policy; the library's defaults stand where one is absent.
	Settings json.RawMessage `json:"settings"`
}

type node struct {
	name     string
	gate     gate
	proxy    *httputil.ReverseProxy
	inFlight atomic.Int64
}

func read(path string) (config, error) {
	var found config
	file, err := os.Open(path)
	if err != nil {
		return found, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		return found, fmt.Errorf("%s: %w", path, err)
	}
	if len(found.Nodes) == 0 {
		return found, fmt.Errorf("%s: nodes: at least one is needed", path)
	}
	return found, nil
}

type failed struct{}

func newNode(name, address string, admits gate, transport http.RoundTripper) *node {
	target := &url.URL{Scheme: "http", Host: address}
	return &node{name: name, gate: admits, proxy: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("X-Plimsoll-Node", name)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if mark, ok := r.Context().Value(failed{}).(*bool); ok {
				*mark = true
			}
			if !errors.Is(err, context.Canceled) {
				log.Printf("%s: %v", name, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}}
}

// serve forwards the request if the node admits it.
func (n *node) serve(w http.ResponseWriter, r *http.Request) bool {
	done, ok := n.gate.enter(r.Context())
	if !ok {
		return false
	}
	n.inFlight.Add(1)
	defer n.inFlight.Add(-1)
	began, broken := time.Now(), false
	n.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), failed{}, &broken)))
	done(result{delay: time.Since(began), failed: broken, left: r.Context().Err() != nil})
	return true
}

type nodes []*node

func (all nodes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	type choice struct {
		node     *node
		inFlight int64
	}
	order := make([]choice, len(all))
	for n, from := range rand.Perm(len(all)) {
		order[n] = choice{all[from], all[from].inFlight.Load()}
	}
	slices.SortStableFunc(order, func(a, b choice) int { return cmp.Compare(a.inFlight, b.inFlight) })
	for _, one := range order {
		if one.node.serve(w, r) {
			return
		}
	}
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Plimsoll-Reason", "full")
	http.Error(w, "no node admits it", http.StatusServiceUnavailable)
}

// state is what the lab asks for: each node's limit and requests in flight.
func (all nodes) state(w http.ResponseWriter, _ *http.Request) {
	type row struct {
		Limit    int   `json:"limit"`
		InFlight int64 `json:"in_flight"`
	}
	found := map[string]row{}
	for _, one := range all {
		found[one.name] = row{one.gate.limit(), one.inFlight.Load()}
	}
	if err := json.NewEncoder(w).Encode(found); err != nil {
		log.Print(err)
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, one := range info.Deps {
			if one.Path == library {
				return strings.TrimPrefix(one.Version, "v")
			}
		}
	}
	return "of no known version"
}

func main() {
	path := flag.String("config", "", "JSON `file` with listen, admin, nodes, policy and settings")
	versionOnly := flag.Bool("version", false, "print the library's version")
	flag.Parse()
	if *versionOnly {
		fmt.Println("failsafe-go", version())
		return
	}
	settings, err := read(*path)
	if err != nil {
		log.Fatal(err)
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		MaxIdleConnsPerHost: 1024,
		DisableCompression:  true,
	}
	var all nodes
	for name, address := range settings.Nodes {
		admits, err := newGate(settings.Policy, settings.Settings)
		if err != nil {
			log.Fatalf("%s: %v", *path, err)
		}
		all = append(all, newNode(name, address, admits, transport))
	}
	admin := http.NewServeMux()
	admin.HandleFunc("GET /nodes", all.state)
	servers := []*http.Server{
		{Addr: settings.Listen, Handler: all, ReadHeaderTimeout: 10 * time.Second},
		{Addr: settings.Admin, Handler: admin, ReadHeaderTimeout: 10 * time.Second},
	}
	ended := make(chan error, len(servers))
	for _, one := range servers {
		go func() { ended <- one.ListenAndServe() }()
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	select {
	case err := <-ended:
		log.Fatal(err)
	case <-stopped.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	for _, one := range servers {
		if err := one.Shutdown(grace); err != nil {
			log.Print(err)
		}
	}
}
