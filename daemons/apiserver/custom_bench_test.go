package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// manyDefinitions is the number of definitions in a cluster with a large cloud provider.
const manyDefinitions = 750

// numberedDefinition returns a definition with a schema of some size, and the path of its objects. Five definitions
// share a group.
func numberedDefinition(i int) (definition, path string) {
	group, plural, kind := fmt.Sprintf("g%d.cloud.example.com", i/5), fmt.Sprintf("things%d", i), fmt.Sprintf("Thing%d",
		i)
	var fields strings.Builder
	for f := range 40 {
		fmt.Fprintf(
			&fields,
			`,"field%d":{"type":"object","description":"What is wanted of it, which is said at some length, as providers do.","properties":{"a":{"type":"string","maxLength":64},"b":{"type":"array","items":{"type":"object","properties":{"c":{"type":"integer","default":1}}}}}}`,
			f,
		)
	}
	return fmt.Sprintf(
			`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[2]s.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",
 "names":{"plural":%[2]q,"kind":%[3]q},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
 "spec":{"type":"object","properties":{"x":{"type":"string"}%[4]s}},"status":{"type":"object","properties":{"y":{"type":"string"}%[4]s}}}}}}]}}`,
			group,
			plural,
			kind,
			fields.String(),
		),
		"/apis/" + group + "/v1/" + plural
}

// BenchmarkAddDefinition measures the processor time of one more definition when there are many, including the
// documents that clients fetch afterwards.
func BenchmarkAddDefinition(b *testing.B) {
	cfg := startConfig(b, stores["memory"](b), nil)
	quiet := rest.CopyConfig(cfg)
	create := func(i int) (path string) {
		definition, path := numberedDefinition(i)
		if code, text := sendRequest(b, quiet, "POST", definitionsPath, definition); code != 201 {
			b.Fatalf("%d %s", code, text)
		}
		return path
	}
	served := func(path string) {
		at := strings.LastIndexByte(path, '/')
		for {
			if _, text := sendRequest(b, quiet, "GET", path[:at], ""); strings.Contains(text, `"name":"`+path[at+1:]+`"`) {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	start := time.Now()
	for i := range manyDefinitions {
		served(create(i))
	}
	all := time.Since(start)
	sendRequest(b, quiet, "GET", "/openapi/v3", "")
	sendRequest(b, quiet, "GET", "/openapi/v2", "")
	spent := map[string]time.Duration{}
	took := map[string]time.Duration{}
	step := func(name string, f func()) {
		cpu, at := processorTime(b), time.Now()
		f()
		spent[name] += processorTime(b) - cpu
		took[name] += time.Since(at)
	}
	n := manyDefinitions
	for b.Loop() {
		step("definition", func() { served(create(n)) })
		step("openapi-v3", func() { sendRequest(b, quiet, "GET", "/openapi/v3", "") })
		step("openapi-v2", func() { sendRequest(b, quiet, "GET", "/openapi/v2", "") })
		step("discovery", func() {
			sendRequest(b, quiet, "GET", "/apis", "", "Accept",
				"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		})
		n++
	}
	for name, d := range spent {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), "cpu-ms/"+name)
		b.ReportMetric(float64(took[name].Microseconds())/1000/float64(b.N), "ms/"+name)
	}
	b.ReportMetric(all.Seconds(), "s-to-begin")
}
