package run

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/version"
)

// newBuildInfo is the metric by which it is told which releases run together.
func newBuildInfo() prometheus.Collector {
	numbers := strings.SplitN(strings.TrimPrefix(version.Kubernetes, "v"), ".", 3)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "Which release this is.", ConstLabels: prometheus.Labels{
			"major": numbers[0], "minor": numbers[1], "git_version": version.Kubernetes, "git_commit": version.Version, "git_tree_state": "clean", "build_date": "",
			"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
		},
	})
	build.Set(1)
	return build
}
