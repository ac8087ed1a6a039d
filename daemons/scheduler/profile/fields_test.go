package profile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// These maps list every field of a KubeSchedulerConfiguration and of the plugins' arguments, by how it is handled.
var (
	supportedFields = map[string]string{
		"KubeSchedulerConfiguration": "TypeMeta PercentageOfNodesToScore PodInitialBackoffSeconds " +
			"PodMaxBackoffSeconds Profiles",
		"KubeSchedulerProfile": "SchedulerName PercentageOfNodesToScore Plugins PluginConfig",
		"Plugins":              "Filter PostFilter Score MultiPoint", "PluginSet": "Enabled Disabled",
		"Plugin": "Name Weight", "PluginConfig": "Name Args",
		"DefaultPreemptionArgs":               "TypeMeta MinCandidateNodesPercentage MinCandidateNodesAbsolute",
		"InterPodAffinityArgs":                "TypeMeta HardPodAffinityWeight IgnorePreferredTermsOfExistingPods",
		"NodeResourcesFitArgs":                "TypeMeta IgnoredResources IgnoredResourceGroups ScoringStrategy",
		"ScoringStrategy":                     "Type Resources RequestedToCapacityRatio",
		"RequestedToCapacityRatioParam":       "Shape",
		"UtilizationShapePoint":               "Utilization Score",
		"ResourceSpec":                        "Name Weight",
		"PodTopologySpreadArgs":               "TypeMeta DefaultConstraints DefaultingType",
		"NodeResourcesBalancedAllocationArgs": "TypeMeta Resources",
		"VolumeBindingArgs":                   "TypeMeta BindTimeoutSeconds Shape",
		"NodeAffinityArgs":                    "TypeMeta AddedAffinity",
		"DynamicResourcesArgs":                "TypeMeta FilterTimeout",
	}
	rejectedFields = map[string]string{
		"KubeSchedulerConfiguration": "Parallelism LeaderElection ClientConnection DebuggingConfiguration Extenders " +
			"DelayCacheUntilActive",
		"Plugins": "PreEnqueue QueueSort PreFilter PreScore Reserve Permit PreBind Bind PostBind " +
			"PlacementGenerate PlacementScore PodGroupPostFilter",
		"DynamicResourcesArgs": "BindingTimeout",
	}
)

func TestEveryConfigurationFieldIsSupportedOrRejected(t *testing.T) {
	got := map[string]bool{}
	for _, all := range []map[string]string{supportedFields, rejectedFields} {
		for typ, fields := range all {
			for _, f := range strings.Fields(fields) {
				if got[typ+"."+f] {
					t.Errorf("%s.%s is there twice", typ, f)
				}
				got[typ+"."+f] = true
			}
		}
	}
	look := func(typ reflect.Type) {
		for i := range typ.NumField() {
			if key := typ.Name() + "." + typ.Field(i).Name; !got[key] {
				t.Errorf("%s is neither carried out nor refused: say in this file what becomes of it", key)
			} else {
				delete(got, key)
			}
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[configv1.KubeSchedulerConfiguration](),
		reflect.TypeFor[configv1.KubeSchedulerProfile](),
		reflect.TypeFor[configv1.Plugins](), reflect.TypeFor[configv1.PluginSet](), reflect.TypeFor[configv1.Plugin](),
		reflect.TypeFor[configv1.PluginConfig](),
		reflect.TypeFor[configv1.ScoringStrategy](), reflect.TypeFor[configv1.RequestedToCapacityRatioParam](),
		reflect.TypeFor[configv1.UtilizationShapePoint](),
		reflect.TypeFor[configv1.ResourceSpec]()} {
		look(typ)
	}
	scheme := runtime.NewScheme()
	if err := configv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, typ := range scheme.KnownTypes(configv1.SchemeGroupVersion) {
		plugin, ok := strings.CutSuffix(kind, "Args")
		if !ok {
			continue
		}
		look(typ)
		given := header + fmt.Sprintf("profiles:\n- pluginConfig: [{name: %s, args: {apiVersion: %s, kind: %s}}]\n",
			plugin, configv1.SchemeGroupVersion, kind)
		if _, err := Parse([]byte(given)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for key := range got {
		t.Errorf("%s is listed and not there", key)
	}
}

// Enabling or disabling plugins is rejected at every extension point that is not supported.
func TestUnsupportedExtensionPointsAreRejected(t *testing.T) {
	typ := reflect.TypeFor[configv1.Plugins]()
	for _, name := range strings.Fields(rejectedFields["Plugins"]) {
		f, _ := typ.FieldByName(name)
		point, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for _, set := range []string{"enabled", "disabled"} {
			_, err := Parse(
				[]byte(header + fmt.Sprintf("profiles:\n- plugins: {%s: {%s: [{name: Foo}]}}\n", point, set)),
			)
			if err == nil || !strings.Contains(err.Error(), point+": plugins are turned on and off by") {
				t.Errorf("%s of %s: %v", set, point, err)
			}
		}
	}
}
