package run

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/version"
)

// featureGates lists the upstream feature gates that the daemons implement, with their stages. The empty stage means
// general availability.
var featureGates = []struct{ name, stage string }{
	{"ComponentSLIs", ""}, {"NativeHistograms", "BETA"}, {"ComponentStatusz", "BETA"}, {"ComponentFlagz", "BETA"},
}

// newFeatureMetric returns the metric of enabled features.
func newFeatureMetric() prometheus.Collector {
	on := prometheus.NewGaugeVec(
		prometheus.GaugeOpts{Name: "kubernetes_feature_enabled", Help: "Whether a feature is on, and its stage."},
		[]string{"name", "stage"},
	)
	for _, f := range featureGates {
		on.WithLabelValues(f.name, f.stage).Set(1)
	}
	return on
}

// newBuildInfo returns the metric of the running release.
func newBuildInfo() prometheus.Collector {
	numbers := strings.SplitN(strings.TrimPrefix(version.Kubernetes, "v"), ".", 3)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "Which release this is.", ConstLabels: prometheus.Labels{
			"major": numbers[0], "minor": numbers[1], "git_version": version.Kubernetes, "git_commit": version.Version,
			"git_tree_state": "clean", "build_date": "",
			"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" +
				runtime.GOARCH,
		},
	})
	build.Set(1)
	return build
}
