package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"

	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/request"
	release "clusterctl/daemons/version"
)

// Version returns the API's version, as served by /version.
func Version() version.Info {
	parts := strings.SplitN(strings.TrimPrefix(release.Kubernetes, "v"), ".", 3)
	info := version.Info{
		GitVersion: release.Kubernetes, GitCommit: release.Version, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if len(parts) > 1 {
		info.Major, info.Minor = parts[0], parts[1]
		info.EmulationMajor, info.EmulationMinor = info.Major, info.Minor
		if minor, err := strconv.Atoi(info.Minor); err == nil {
			info.MinCompatibilityMajor, info.MinCompatibilityMinor = info.Major, strconv.Itoa(minor-1)
		}
	}
	return info
}

func writeVersion(q *request.Request) error { return writeJSON(q, Version()) }

func writeJSON(q *request.Request, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	q.Answer.Header().Set("Content-Type", "application/json")
	_, err = q.Answer.Write(append(data, '\n'))
	return err
}

// writePaths answers / with the list of paths.
func (s *Server) writePaths(q *request.Request) error {
	paths := []string{
		"/api",
		"/api/v1",
		"/apis",
		"/healthz",
		"/livez",
		"/metrics",
		"/metrics/slis",
		"/openapi/v2",
		"/openapi/v3",
		"/readyz",
		"/version",
	}
	if s.options.Limits.Flow != nil {
		paths = append(paths, flow.DebugPaths()...)
	}
	for gvr := range s.kinds.load().resources {
		if gvr.Group != "" {
			paths = append(paths, "/apis/"+gvr.Group, "/apis/"+gvr.Group+"/"+gvr.Version)
		}
	}
	slices.Sort(paths)
	return writeJSON(q, map[string][]string{"paths": slices.Compact(paths)})
}

func serveProfile(q *request.Request) {
	switch strings.TrimPrefix(q.Path, "/debug/pprof/") {
	case "profile":
		pprof.Profile(q.Answer, q.HTTP)
	case "trace":
		pprof.Trace(q.Answer, q.HTTP)
	case "symbol":
		pprof.Symbol(q.Answer, q.HTTP)
	case "cmdline":
		http.Error(q.Answer, "not available", http.StatusNotFound)
	default:
		pprof.Index(q.Answer, q.HTTP)
	}
}
