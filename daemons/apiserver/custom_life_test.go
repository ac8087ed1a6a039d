package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"clusterctl/tests/tools/amount"
)

// Proves S12.
func TestInvalidDefinitionsAreRejected(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	for name, c := range map[string]struct{ from, to, want string }{
		"the name is plural and group": {`"name":"crontabs.stable.example.com"`, `"name":"tabs.stable.example.com"`, "metadata.name"},
		"one version is stored":        {`"storage":true`, `"storage":false`, "must have exactly one version marked as storage version"},
		"a schema is required":         {`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{`, `"x":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{`, "openAPIV3Schema: Required value"},
		"schemas are structural":       {`"image":{"type":"string"}`, `"image":{}`, "type: Required value"},
		"rules compile":                {`self.replicas <= self.maxReplicas`, `self.replicas <=`, "compilation failed"},
		"defaults fit":                 {`"default":"busybox"`, `"default":7`, "default: Invalid value"},
		"a review that is known":       {`"scope":"Namespaced"`, `"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v9"],"clientConfig":{"url":"https://localhost/x"}}},"scope":"Namespaced"`, `must include at least one of v1, v1beta1`},
		"columns have types":           {`"type":"date","jsonPath"`, `"type":"day","jsonPath"`, "additionalPrinterColumns"},
	} {
		code, text := sendRequest(t, cfg, "POST", definitionsPath, strings.Replace(crontabs, c.from, c.to, 1))
		if code != 422 || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %.700s", name, code, text)
		}
	}
	if code, text := sendRequest(t, cfg, "POST", definitionsPath+"?fieldValidation=Strict", strings.Replace(crontabs, `"scope"`, `"nope":1,"scope"`, 1)); code != 400 ||
		!strings.Contains(text, `spec.nope`) {
		t.Errorf("an unknown field: %d %.300s", code, text)
	}
	createDefinition(t, cfg, crontabs, cronTabPath)
	if code, text := sendRequest(t, cfg, "GET", definitionsPath+"/crontabs.stable.example.com", ""); code != 200 ||
		!strings.Contains(
			text,
			`"storedVersions":["v1"]`,
		) || !strings.Contains(text, `"listKind":"CronTabList"`) || !strings.Contains(text, "InitialNamesAccepted") {
		t.Errorf("established: %d %.3000s", code, text)
	}
	// Another definition of the group wants the same kind and short name.
	other := strings.NewReplacer("crontabs", "timetables", `"crontab"`, `"timetable"`).Replace(crontabs)
	if code, text := sendRequest(t, cfg, "POST", definitionsPath, other); code != 201 {
		t.Fatalf("another one: %d %s", code, text)
	}
	waitUntil(t, func() error {
		code, text := sendRequest(t, cfg, "GET", definitionsPath+"/timetables.stable.example.com", "")
		if !strings.Contains(text, "ListKindConflict") || !strings.Contains(text, `"reason":"NotAccepted"`) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	if code, _ := sendRequest(t, cfg, "GET", "/apis/stable.example.com/v1/timetables", ""); code != 404 {
		t.Errorf("a kind whose names are taken is served: %d", code)
	}
}

// Proves S12.
func TestDeletingADefinitionDeletesItsObjects(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	held := strings.Replace(cronTabObject("held", ""), `"name":"held"`, `"name":"held","finalizers":["example.com/hold"]`, 1)
	for _, obj := range []string{cronTabObject("a", ""), held} {
		if code, text := sendRequest(t, cfg, "POST", cronTabPath, obj); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	events := watchLines(ctx, t, cfg, cronTabPath+"?watch=1")
	if line := <-events; !strings.Contains(line, "ADDED") {
		t.Fatalf("watch: %s", line)
	}
	<-events
	if code, text := sendRequest(t, cfg, "DELETE", definitionsPath+"/crontabs.stable.example.com", ""); code != 200 ||
		!strings.Contains(text, "customresourcecleanup.apiextensions.k8s.io") {
		t.Fatalf("%d %s", code, text)
	}
	waitUntil(t, func() error {
		if code, _ := sendRequest(t, cfg, "GET", cronTabPath+"/a", ""); code != 404 {
			return fmt.Errorf("the object is there: %d", code)
		}
		code, text := sendRequest(t, cfg, "POST", cronTabPath, cronTabObject("late", ""))
		if code != 405 {
			return fmt.Errorf("an object of a definition that goes: %d %s", code, text)
		}
		return nil
	})
	if code, text := sendRequest(t, cfg, "GET", definitionsPath+"/crontabs.stable.example.com", ""); code != 200 ||
		!strings.Contains(text, "InstanceDeletionInProgress") {
		t.Errorf("while an object is held: %d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "PATCH", cronTabPath+"/held", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json"); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	waitUntil(t, func() error {
		if code, _ := sendRequest(t, cfg, "GET", definitionsPath+"/crontabs.stable.example.com", ""); code != 404 {
			return fmt.Errorf("the definition is there: %d", code)
		}
		for _, path := range []string{cronTabPath, "/apis/stable.example.com",
			"/openapi/v3/apis/stable.example.com/v1"} {
			if code, _ := sendRequest(t, cfg, "GET", path, ""); code != 404 {
				return fmt.Errorf("%s: %d", path, code)
			}
		}
		return nil
	})
	for range events { // until the watch ends
	}
	createDefinition(t, cfg, crontabs, cronTabPath)
	if code, text := sendRequest(t, cfg, "GET", cronTabPath, ""); code != 200 || !strings.Contains(text, `"items":[]`) {
		t.Errorf("defined again: %d %s", code, text)
	}
}

// Proves S12.
func TestDefinitionChangesApplyToStoredObjects(t *testing.T) {
	s := stores["memory"](t)
	cfg := startConfig(t, s, nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	if code, text := sendRequest(t, cfg, "POST", cronTabPath, cronTabObject("a", "")); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	patch := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/suspend","value":{"type":"boolean","default":true}},
	 {"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`
	if code, text := sendRequest(t, cfg, "PATCH", definitionsPath+"/crontabs.stable.example.com", patch, "Content-Type",
		"application/json-patch+json"); code != 200 ||
		!strings.Contains(text, `"storedVersions":["v1","v1beta1"]`) {
		t.Fatalf("%d %s", code, text)
	}
	waitUntil(t, func() error {
		code, text := sendRequest(t, cfg, "GET", cronTabPath+"/a", "")
		if code != 200 || !strings.Contains(text, `"suspend":true`) ||
			!strings.Contains(text, `"apiVersion":"stable.example.com/v1"`) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	// Another server over the same store serves the same objects.
	second := startConfig(t, s, nil)
	if code, text := sendRequest(t, second, "GET", cronTabPath+"/a", ""); code != 200 || !strings.Contains(text, `"suspend":true`) {
		t.Errorf("another server, once ready: %d %s", code, text)
	}
}

// Proves S12.
func TestStorageVersionMayBeUnserved(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, strings.Replace(crontabs, `"served":true,"storage":true`, `"served":false,"storage":true`,
		1), betaPath)
	if code, text := sendRequest(t, cfg, "POST", betaPath,
		strings.Replace(cronTabObject("a", ""), "/v1", "/v1beta1", 1)); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	if code, _ := sendRequest(t, cfg, "GET", cronTabPath, ""); code != 404 {
		t.Errorf("a version that is not served: %d", code)
	}
	if code, text := sendRequest(t, cfg, "DELETE", definitionsPath+"/crontabs.stable.example.com", ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	waitUntil(t, func() error {
		if code, _ := sendRequest(t, cfg, "GET", definitionsPath+"/crontabs.stable.example.com", ""); code != 404 {
			return fmt.Errorf("the definition is there: %d", code)
		}
		return nil
	})
}

// watchLines returns the lines of a watch until it ends.
func watchLines(ctx context.Context, t *testing.T, cfg *rest.Config, path string) <-chan string {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, "GET", cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("watch %s: %v, %v", path, answer, err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer func() { _ = answer.Body.Close() }() // it has been read to its end
		for scan := bufio.NewScanner(answer.Body); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return lines
}

// Proves S12.
func TestEveryServerServesAnEstablishedDefinition(t *testing.T) {
	s := stores["memory"](t)
	first, second := startConfig(t, s, nil), startConfig(t, s, nil)
	for i := range 20 {
		name := fmt.Sprintf("tabs%d", i)
		definition := strings.NewReplacer("crontabs", name, `"crontab"`, `"tab`+fmt.Sprint(i)+`"`, "CronTab", fmt.Sprintf("Tab%d", i), `"ct"`, `"t`+fmt.Sprint(i)+`"`).
			Replace(crontabs)
		if code, text := sendRequest(t, first, "POST", definitionsPath, definition); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
		waitUntil(t, func() error {
			if _, text := sendRequest(t, first, "GET", definitionsPath+"/"+name+".stable.example.com",
				""); !strings.Contains(text,
				`"reason":"InitialNamesAccepted","message":"the initial names have been accepted"`) {
				return fmt.Errorf("not established: %s", text)
			}
			return nil
		})
		for _, cfg := range []*rest.Config{second, first} {
			if code, text := sendRequest(t, cfg, "GET", "/apis/stable.example.com/v1/"+name, ""); code != 200 {
				t.Fatalf("%d %s", code, text)
			}
		}
	}
}

// A client that has seen a definition as established finds its kind in the discovery documents of any server.
// Proves S12.
func TestEveryServerListsAnEstablishedDefinition(t *testing.T) {
	s := stores["memory"](t)
	first, second := startConfig(t, s, nil), startConfig(t, s, nil)
	waitUntil(t, func() error { // both have heard from the store
		for _, cfg := range []*rest.Config{first, second} {
			if code, text := sendRequest(t, cfg, "GET", "/readyz/etcd", ""); code != 200 {
				return fmt.Errorf("%d %s", code, text)
			}
		}
		return nil
	})
	const whole = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for i := range amount.Scaled(20, 5) {
		definition, path := numberedDefinition(i)
		at := strings.LastIndexByte(path, '/')
		name := path[at+1:]
		group := strings.Split(path, "/")[2]
		if code, text := sendRequest(t, first, "POST", definitionsPath, definition); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
		waitUntil(t, func() error {
			if _, text := sendRequest(t, first, "GET", definitionsPath+"/"+name+"."+group, ""); !strings.Contains(text,
				`"reason":"InitialNamesAccepted"`) {
				return fmt.Errorf("not established: %s", text)
			}
			return nil
		})
		for _, cfg := range []*rest.Config{second, first} {
			for path, accept := range map[string]string{path[:at]: "", "/apis": whole, "/openapi/v3" + path[:at]: "",
				"/openapi/v2": ""} {
				want := `"name":"` + name + `"`
				switch {
				case accept != "":
					want = `"resource":"` + name + `"`
				case strings.HasPrefix(path, "/openapi"):
					want = name + "/{name}"
				}
				if code, text := sendRequest(t, cfg, "GET", path, "", "Accept", accept); code != 200 ||
					!strings.Contains(text, want) {
					t.Fatalf("%s does not tell of %s: %d %.300s", path, name, code, text)
				}
			}
		}
	}
}
