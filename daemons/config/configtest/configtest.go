// Package configtest finds values for daemons' settings, so that tests cover every setting, including future ones.
package configtest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config"
)

// candidates holds values to try. Every setting accepts some of them.
var candidates = []any{
	"0.0.0.0", "0.0.0.0:10999", "/etc/other", "25Mi", "sequential", "", "least_connections", "1.3",
	"kube-system/balancer",
	true, false, new(true),
	1, 2, 25, 60, 90, 600, 4000,
	0.25, 2.5,
	30 * time.Second, 20 * time.Minute, time.Millisecond, 5 * time.Second,
	metav1.Duration{Duration: 30 * time.Second}, metav1.Duration{Duration: 20 * time.Minute},
	[]string{"*", "-job"}, []string{"10.0.0.0/24", "10.1.0.0/16"}, []string{"10.0.0.53", "10.0.0.54:5353"},
	map[string]string{
		"memory.available": "200Mi",
		"nodefs.available": "7%",
	}, map[string]string{"cpu": "100m", "memory": "200Mi"},
	"load_balancer", "21000-21099", config.VerifyAll, config.ReserveTiered,
	[]string{"registry.example/team/*", "registry.example:5000/web"}, []string{"hooks.example", "*.git.example"},
	map[string]string{"db.corp.example": "10.0.0.53 fd00::53", "x.example": "10.0.0.54"},
}

// Others returns the candidates that a setting may have in the configuration that cfg points to, other than its present
// value. If there are none, it returns those that it may have together with another setting.
func Others(cfg any, s config.Setting) (list []any) {
	var together []any
	for _, value := range candidates {
		if reflect.TypeOf(value) != reflect.TypeOf(s.Default) || reflect.DeepEqual(value, s.Of(cfg)) {
			continue
		}
		changed := reflect.New(reflect.TypeOf(cfg).Elem())
		changed.Elem().Set(reflect.ValueOf(cfg).Elem())
		s.Put(changed.Interface(), value)
		problems := config.Problems(changed.Interface())
		if len(problems) == 0 {
			list = append(list, value)
		}
		if !slices.ContainsFunc(problems, func(p config.Problem) bool { return p.With == "" }) {
			together = append(together, value)
		}
	}
	if len(list) == 0 {
		return together
	}
	return list
}

// Other returns the first of Others. A setting without one needs a new candidate.
func Other(cfg any, s config.Setting) any {
	list := Others(cfg, s)
	if len(list) == 0 {
		panic(fmt.Sprintf("configtest: no value is known that %s may have besides %v", s.Name, s.Default))
	}
	return list[0]
}
