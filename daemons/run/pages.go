package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/version"
)

// About is what a daemon reports about itself at /statusz, /flagz and /configz.
type About struct {
	Name    string
	Started time.Time
	Flags   map[string]string // its command line, including defaults
	Config  map[string]any    // the configuration from its file, by upstream's name
	Paths   []string          // other paths that it serves
}

const notForMachines = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
	"guarantees and is for debugging purposes only.\n"

// isDaemonPage reports whether a path is one of the pages about the daemon, or for profiling.
func isDaemonPage(path string) bool {
	return path == "/statusz" || path == "/flagz" || path == "/configz" || path == "/debug/pprof" ||
		strings.HasPrefix(path, "/debug/pprof/")
}

// Pages serves /statusz and /flagz, /configz if there is a configuration, and /debug/pprof if profiling is set. The
// caller is responsible for access control.
func (e Env) Pages(profiling bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /statusz", e.About.serveStatus)
	mux.HandleFunc("GET /flagz", e.About.serveFlags)
	if e.About.Config != nil {
		mux.HandleFunc("GET /configz", e.About.serveConfiguration)
	}
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Local serves the health endpoints and /metrics. It serves /statusz and /flagz only at loopback addresses. It is for
// daemons that do not authenticate clients.
func (e Env) Local() http.Handler {
	open, pages := e.Handler(), e.Pages(false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isDaemonPage(r.URL.Path) {
			open.ServeHTTP(w, r)
			return
		}
		at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if at == nil || !at.IP.IsLoopback() {
			http.Error(w, "only served at a loopback address", http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

func (a *About) serveStatus(w http.ResponseWriter, r *http.Request) {
	up := time.Since(a.Started)
	paths := append([]string{"/healthz", "/livez", "/metrics", "/readyz"}, a.Paths...)
	slices.Sort(paths)
	minor := strings.Join(strings.SplitN(strings.TrimPrefix(version.Kubernetes, "v"), ".", 3)[:2], ".")
	a.writePage(w, r, "Statusz", map[string]any{
		"startTime": a.Started.UTC().
			Format(time.RFC3339),
		"uptimeSeconds": int64(up.Seconds()), "goVersion": runtime.Version(),
		"binaryVersion": strings.TrimPrefix(version.Kubernetes, "v"), "emulationVersion": minor, "paths": paths,
	}, func() {
		fmt.Fprintf(w, "\n%s statusz\n%s\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: "+
			"%s\nEmulation version: %s\nPaths: %s\n", a.Name, notForMachines, a.Started.UTC().Format(time.UnixDate),
			int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60, runtime.Version(),
			strings.TrimPrefix(version.Kubernetes, "v"), minor, strings.Join(paths, " "))
	})
}

func (a *About) serveFlags(w http.ResponseWriter, r *http.Request) {
	a.writePage(w, r, "Flagz", map[string]any{"flags": a.Flags}, func() {
		fmt.Fprintf(w, "\n%s flagz\n%s\n", a.Name, notForMachines)
		for _, name := range slices.Sorted(maps.Keys(a.Flags)) {
			fmt.Fprintf(w, "%s=%s\n", name, a.Flags[name])
		}
	})
}

func (a *About) serveConfiguration(w http.ResponseWriter, _ *http.Request) {
	data, err := json.Marshal(a.Config)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// writePage writes a page as text, or as an object of config.k8s.io if the client asks for that.
func (a *About) writePage(w http.ResponseWriter, r *http.Request, kind string, object map[string]any, text func()) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	accept := header.Joined(r.Header, "Accept")
	if accept == "" {
		accept = "*/*"
	}
	for clause := range strings.SplitSeq(accept, ",") {
		media, parameters, err := mime.ParseMediaType(clause)
		switch v := parameters["v"]; {
		case err != nil:
		case media == "application/json" && parameters["g"] == "config.k8s.io" && parameters["as"] == kind &&
			slices.Contains([]string{"v1alpha1", "v1beta1", "v1"}, v):
			object["kind"], object["apiVersion"], object["metadata"] = kind, "config.k8s.io/"+v, map[string]string{
				"name": a.Name,
			}
			data, err := json.Marshal(object)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(data)
			return
		case media == "text/plain" || media == "text/*" || media == "*/*":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			text()
			return
		}
	}
	http.Error(w, "only text/plain, and application/json;v=v1beta1;g=config.k8s.io;as="+kind+", are supported",
		http.StatusNotAcceptable)
}
