package apiserver_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"
)

const (
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	mapsPath       = "/api/v1/namespaces/default/configmaps"
	mergePatch     = "application/merge-patch+json"
)

// webhookServer is a server with webhooks: its responses by path, and the requests it got.
type webhookServer struct {
	server    *httptest.Server
	responses map[string]func(*admissionv1.AdmissionRequest) string

	mu       sync.Mutex
	requests []string
}

func newWebhookServer(t testing.TB, answer map[string]func(*admissionv1.AdmissionRequest) string) *webhookServer {
	h := &webhookServer{responses: answer}
	h.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.requests = append(
			h.requests,
			strings.Join(
				[]string{
					r.URL.Path,
					string(review.Request.Operation),
					review.Request.Kind.Kind,
					review.Request.SubResource,
					review.Request.Name,
				},
				" ",
			),
		)
		h.mu.Unlock()
		text := answer[r.URL.Path](review.Request)
		switch text {
		case "hang":
			<-r.Context().Done()
			return
		case "fail":
			http.Error(w, "out of tea", http.StatusInternalServerError)
			return
		case "babble":
			fmt.Fprint(w, "tea?")
			return
		}
		fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":%q,"response":{"uid":%q,%s}}`, review.APIVersion,
			review.Request.UID, text)
	}))
	t.Cleanup(h.server.Close)
	return h
}

// takeRequests returns the requests since its last call.
func (h *webhookServer) takeRequests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	requests := h.requests
	h.requests = nil
	return requests
}

// webhookConfig returns the configuration of a webhook at a path of the server.
func (h *webhookServer) webhookConfig(name, path, more string) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	if !strings.Contains(more, `"rules"`) {
		more += `,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["*"]}]`
	}
	return fmt.Sprintf(
		`{"name":%q,"sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}%s}`,
		name,
		h.server.URL+path,
		base64.StdEncoding.EncodeToString(ca),
		more,
	)
}

func configurationObject(kind, name string, hooks ...string) string {
	return fmt.Sprintf(
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"webhooks":[%s]}`,
		kind,
		name,
		strings.Join(hooks, ","),
	)
}

// createConfiguration creates a configuration, and waits until it is in effect on that server.
func createConfiguration(t testing.TB, cfg *rest.Config, path, body string) {
	t.Helper()
	if code, text := sendRequest(t, cfg, "POST", path, body); code != 201 {
		t.Fatalf("configure: %d %s", code, text)
	}
	// A list is consistent, so the cache has the configuration afterwards.
	if code, text := sendRequest(t, cfg, "GET", path, ""); code != 200 {
		t.Fatalf("configure: %d %s", code, text)
	}
}

func configMapObject(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s}}`, name, more)
}

func encodedPatch(text string) string {
	return `"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `"`
}

// Proves S12.
func TestMutatingWebhooksMutate(t *testing.T) {
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/label": func(r *admissionv1.AdmissionRequest) string {
			if r.Operation == admissionv1.Delete {
				return `"allowed":true`
			}
			return encodedPatch(`[{"op":"add","path":"/data","value":{"a":"1"}}]`)
		},
		"/watcher": func(*admissionv1.AdmissionRequest) string { return `"allowed":true,"warnings":["be careful"]` },
	})
	cfg := startConfig(t, stores["memory"](t), nil)
	// The first webhook is called again after the second has changed the object, but not because of its own change.
	createConfiguration(t, cfg, mutatingPath, configurationObject("MutatingWebhookConfiguration", "m", h.webhookConfig(
		"first.example.com", "/watcher", `,"reinvocationPolicy":"IfNeeded"`), h.webhookConfig("second.example.com",
		"/label", `,"reinvocationPolicy":"IfNeeded"`)))
	code, text := sendRequest(t, cfg, "POST", mapsPath, configMapObject("x", ""))
	if code != 201 || !strings.Contains(text, `"data":{"a":"1"}`) || !strings.Contains(text, `299 - "be careful"`) {
		t.Fatalf("%d %s", code, text)
	}
	want := "/watcher CREATE ConfigMap  x|/label CREATE ConfigMap  x|/watcher CREATE ConfigMap  x"
	if got := strings.Join(h.takeRequests(), "|"); got != want {
		t.Errorf("asked\n%s, want\n%s", got, want)
	}
	if code, text := sendRequest(t, cfg, "PATCH", mapsPath+"/x", `{"data":{"b":"2"}}`, "Content-Type", mergePatch); code != 200 ||
		!strings.Contains(text, `"data":{"a":"1"}`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "DELETE", mapsPath+"/x", ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if got := strings.Join(h.takeRequests(), "|"); !strings.HasSuffix(got,
		"/watcher DELETE ConfigMap  x|/label DELETE ConfigMap  x") {
		t.Errorf("asked %s", got)
	}
}

// Proves S12.
func TestValidatingWebhooksReject(t *testing.T) {
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/no": func(r *admissionv1.AdmissionRequest) string {
			return `"allowed":false,"status":{"code":409,"reason":"Conflict","message":"not ` + string(
				r.Operation,
			) + " by " + r.UserInfo.Username + `"}`
		},
		"/silent": func(*admissionv1.AdmissionRequest) string { return `"allowed":false` },
		"/odd":    func(*admissionv1.AdmissionRequest) string { return encodedPatch(`[]`) },
		"/hang":   func(*admissionv1.AdmissionRequest) string { return "hang" },
		"/yes":    func(*admissionv1.AdmissionRequest) string { return `"allowed":true` },
	})
	rules := func(text string) string { return `,"rules":[` + text + `]` }
	all := `{"apiGroups":["*"],"apiVersions":["*"],"resources":["configmaps"],"operations":["*"]}`
	for name, c := range map[string]struct {
		path, more string
		code       int
		want       string
	}{
		"in its words":                     {"/no", "", 409, `admission webhook \"w.example.com\" denied the request: not CREATE by system:anonymous`},
		"without a word":                   {"/silent", "", 400, `admission webhook \"w.example.com\" denied the request without explanation`},
		"an answer that is none":           {"/odd", "", 500, `failed calling webhook \"w.example.com\": received invalid webhook response: validating webhook may not return response.patch`},
		"nobody answers":                   {"/hang", `,"timeoutSeconds":1`, 500, `failed calling webhook \"w.example.com\": failed to call webhook: Post`},
		"nobody answers, which is ignored": {"/hang", `,"timeoutSeconds":1,"failurePolicy":"Ignore"`, 201, ``},
		"it agrees":                        {"/yes", "", 201, ""},
		"other resources":                  {"/no", rules(strings.Replace(all, "configmaps", "secrets", 1)), 201, ""},
		"subresources alone": {"/no", rules(strings.Replace(all, "configmaps", "configmaps/status", 1)),
			201, ""},
		"the object and all its parts": {"/silent", rules(strings.Replace(all, "configmaps", "*/*", 1)), 400, ""},
		"other operations":             {"/no", rules(strings.Replace(all, `["*"]}`, `["UPDATE","DELETE","CONNECT"]}`, 1)), 201, ""},
		"objects without a namespace":  {"/no", rules(strings.Replace(all, `"operations"`, `"scope":"Cluster","operations"`, 1)), 201, ""},
		"objects of other labels":      {"/no", `,"objectSelector":{"matchLabels":{"a":"b"}}`, 201, ""},
		"objects of these labels":      {"/silent", `,"objectSelector":{"matchLabels":{"color":"red"}}`, 400, ""},
		"namespaces of other labels":   {"/no", `,"namespaceSelector":{"matchLabels":{"a":"b"}}`, 201, ""},
		"namespaces of these labels":   {"/silent", `,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}}`, 400, ""},
		"a condition does not hold":    {"/no", `,"matchConditions":[{"name":"c","expression":"request.userInfo.username != 'system:anonymous'"}]`, 201, ""},
		"a condition holds":            {"/silent", `,"matchConditions":[{"name":"c","expression":"object.metadata.name == 'x' && oldObject == null && request.operation == 'CREATE'"}]`, 400, ""},
		"a condition fails":            {"/no", `,"matchConditions":[{"name":"c","expression":"object.data.nope == 'x'"}]`, 403, "no such key: data"},
		"a condition fails, ignored":   {"/no", `,"failurePolicy":"Ignore","matchConditions":[{"name":"c","expression":"object.data.nope == 'x'"}]`, 201, ""},
		"no means before failing":      {"/no", `,"matchConditions":[{"name":"c","expression":"object.data.nope == 'x'"},{"name":"d","expression":"false"}]`, 201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := startConfig(t, stores["memory"](t), nil)
			createConfiguration(t, cfg, validatingPath, configurationObject("ValidatingWebhookConfiguration", "v",
				h.webhookConfig("w.example.com", c.path, c.more)))
			code, text := sendRequest(t, cfg, "POST", mapsPath, configMapObject("x", `,"labels":{"color":"red"}`))
			if code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("%d %s, want %d %s", code, text, c.code, c.want)
			}
		})
	}
}

// An invalid response is reported in upstream's words, and is a failure that may be ignored. A patch whose result is
// not a valid object cannot be ignored.
// Proves S12.
func TestInvalidMutatingWebhookResponsesAreErrors(t *testing.T) {
	typed := func(kind, patch string) string { return strings.Replace(encodedPatch(patch), "JSONPatch", kind, 1) }
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/fail":   func(*admissionv1.AdmissionRequest) string { return "fail" },
		"/babble": func(*admissionv1.AdmissionRequest) string { return "babble" },
		"/broken": func(*admissionv1.AdmissionRequest) string { return encodedPatch(`{`) },
		"/merge":  func(*admissionv1.AdmissionRequest) string { return typed("Merge", `[{"op":"remove","path":"/data"}]`) },
		"/empty":  func(*admissionv1.AdmissionRequest) string { return typed("Merge", `[]`) },
		"/misfit": func(*admissionv1.AdmissionRequest) string {
			return encodedPatch(`[{"op":"add","path":"/data","value":7}]`)
		},
	})
	cfg := startConfig(t, stores["memory"](t), nil)
	for path, c := range map[string]struct {
		code int
		want string
	}{
		"/fail":   {500, `failed calling webhook \"w.example.com\": failed to call webhook: an error on the server (\"out of tea\") has prevented the request from succeeding"`},
		"/babble": {500, `failed to call webhook: couldn't get version/kind; json parse error: invalid character`},
		"/broken": {500, `failed calling webhook \"w.example.com\": received undecodable patch in webhook response: `},
		"/merge":  {500, `failed calling webhook \"w.example.com\": unsupported patch type \"Merge\"`},
		"/empty":  {201, ""},
		"/misfit": {500, `"Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string"`},
	} {
		for _, policy := range []string{"Fail", "Ignore"} {
			createConfiguration(t, cfg, mutatingPath, configurationObject("MutatingWebhookConfiguration", "m",
				h.webhookConfig("w.example.com", path, `,"failurePolicy":"`+policy+`"`)))
			code, text := sendRequest(t, cfg, "POST", mapsPath+"?dryRun=All", configMapObject("x", ""))
			if policy == "Ignore" && path != "/misfit" {
				c.code, c.want = 201, ""
			}
			if code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("%s %s: %d %s, want %d %s", path, policy, code, text, c.code, c.want)
			}
			if code, text := sendRequest(t, cfg, "DELETE", mutatingPath+"/m", ""); code != 200 {
				t.Fatalf("%d %s", code, text)
			}
		}
	}
}

// For a patch, a webhook gets the options of the resulting create or update.
// Proves S12.
func TestPatchesReachWebhooksAsCreateOrUpdate(t *testing.T) {
	var options []string
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/": func(r *admissionv1.AdmissionRequest) string {
			options = append(options, string(r.Options.Raw))
			return `"allowed":true`
		},
	})
	cfg := startConfig(t, stores["memory"](t), nil)
	createConfiguration(t, cfg, validatingPath, configurationObject("ValidatingWebhookConfiguration", "v",
		h.webhookConfig("w.example.com", "/", "")))
	for _, color := range []string{"red", "blue"} {
		if code, text := sendRequest(t, cfg, "PATCH", mapsPath+"/x?fieldManager=m&force=true", configMapObject("x", `,"labels":{"color":"`+color+`"}`), "Content-Type", applyType); code > 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	want := []string{
		`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m"}`,
		`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m"}`,
	}
	if strings.Join(options, "\n") != strings.Join(want, "\n") {
		t.Errorf("the webhook got the options %q, want %q", options, want)
	}
}

// Proves S12.
func TestWebhooksReceiveTheVersionOfTheirRules(t *testing.T) {
	var versions []string
	var mu sync.Mutex
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/": func(r *admissionv1.AdmissionRequest) string {
			mu.Lock()
			defer mu.Unlock()
			versions = append(versions, r.RequestKind.Version+" as "+r.Kind.Version+" "+string(r.Object.Raw))
			return encodedPatch(`[{"op":"add","path":"/metadata/labels","value":{"seen":"` + r.Kind.Version + `"}}]`)
		},
	})
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, crontabs, cronTabPath)
	createConfiguration(t, cfg, mutatingPath, configurationObject(
		"MutatingWebhookConfiguration",
		"m",
		h.webhookConfig(
			"w.example.com",
			"/",
			`,"rules":[{"apiGroups":["stable.example.com"],"apiVersions":["v1"],"resources":["crontabs"],"operations":["CREATE"]}]`,
		),
		h.webhookConfig(
			"exact.example.com",
			"/",
			`,"matchPolicy":"Exact","rules":[{"apiGroups":["stable.example.com"],"apiVersions":["v1"],"resources":["crontabs"],"operations":["CREATE"]}]`,
		),
	))
	beta := strings.Replace(cronTabObject("a", ""), "/v1", "/v1beta1", 1)
	if code, text := sendRequest(t, cfg, "POST", betaPath, beta); code != 201 || !strings.Contains(text, `"seen":"v1"`) ||
		!strings.Contains(text, "v1beta1") {
		t.Fatalf("%d %s", code, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(versions) != 1 || !strings.HasPrefix(versions[0], "v1beta1 as v1 ") ||
		!strings.Contains(versions[0], `"apiVersion":"stable.example.com/v1"`) {
		t.Errorf("seen: %q", versions)
	}
}

// Proves S12.
func TestWebhooksReceiveSubresourcesAndConnects(t *testing.T) {
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/": func(r *admissionv1.AdmissionRequest) string {
			if r.Kind.Kind == "Scale" {
				return encodedPatch(`[{"op":"replace","path":"/spec/replicas","value":7}]`)
			}
			if r.Kind.Kind == "PodExecOptions" {
				return `"allowed":false,"status":{"message":"no shells"}`
			}
			return `"allowed":true`
		},
	})
	cfg := startConfig(t, stores["memory"](t), nil)
	for path, body := range map[string]string{
		"/apis/apps/v1/namespaces/default/deployments": `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		"/api/v1/namespaces/default/pods":              `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	} {
		if code, text := sendRequest(t, cfg, "POST", path, body); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	createConfiguration(t, cfg, mutatingPath, configurationObject("MutatingWebhookConfiguration", "m", h.webhookConfig(
		"w.example.com", "/",
		`,"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"],"operations":["*"]}]`)))
	h.takeRequests()
	if code, text := sendRequest(t, cfg, "PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale", `{"spec":{"replicas":3}}`, "Content-Type", mergePatch); code != 200 ||
		!strings.Contains(text, `"replicas":7`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/pods/p/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`); code != 201 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/pods/p/exec?command=sh&container=c",
		""); code != 400 ||
		!strings.Contains(text, "no shells") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/pods/p/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`); code != 201 {
		t.Errorf("%d %s", code, text)
	}
	want := []string{
		"/ UPDATE Scale scale d",
		"/ CREATE Binding binding p",
		"/ CONNECT PodExecOptions exec p",
		"/ CREATE Eviction eviction p",
	}
	if got := h.takeRequests(); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// Proves S12.
func TestInvalidWebhookConfigurationsAreRejected(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	good := `{"name":"w.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"n","name":"s"}},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]}`
	code, text := sendRequest(t, cfg, "POST", validatingPath,
		configurationObject("ValidatingWebhookConfiguration", "good", good))
	for _, want := range []string{`"failurePolicy":"Fail"`, `"matchPolicy":"Equivalent"`, `"timeoutSeconds":10`, `"port":443`, `"scope":"*"`, `"namespaceSelector":{}`, `"generation":1`} {
		if code != 201 || !strings.Contains(text, want) {
			t.Fatalf("%d %s lacks %s", code, text, want)
		}
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"a name of three parts": {"w.example.com", "w.com", "should be a domain with at least three " +
			"segments separated by dots"},
		"side effects are said":           {`"sideEffects":"None",`, "", "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"},
		"and none that dry runs have":     {`"sideEffects":"None"`, `"sideEffects":"Some"`, `Unsupported value: \"Some\"`},
		"a version that is known":         {`["v1"],"clientConfig"`, `["v7"],"clientConfig"`, "must include at least one of v1, v1beta1"},
		"versions are said":               {`"admissionReviewVersions":["v1"],`, ``, "must specify one of v1, v1beta1"},
		"one way to call it":              {`"service":{"namespace":"n","name":"s"}`, ``, "exactly one of url or service is required"},
		"by TLS":                          {`"service":{"namespace":"n","name":"s"}`, `"url":"http://x"`, `'https' is the only allowed URL scheme`},
		"a time that writes can wait":     {`"rules"`, `"timeoutSeconds":31,"rules"`, "the timeout value must be between 1 and 30 seconds"},
		"an operation":                    {`"CREATE"`, `"READ"`, `Unsupported value: \"READ\"`},
		"all or some operations":          {`"CREATE"`, `"CREATE","*"`, "if '*' is present, must not specify other operations"},
		"resources that do not overlap":   {`["pods"]`, `["*/*","pods"]`, "if '*/*' is present, must not specify other resources"},
		"conditions that compile":         {`"rules"`, `"matchConditions":[{"name":"c","expression":"objekt.x"}],"rules"`, "undeclared reference to 'objekt'"},
		"conditions that are true or not": {`"rules"`, `"matchConditions":[{"name":"c","expression":"1"}],"rules"`, "must evaluate to bool"},
	} {
		body := configurationObject("ValidatingWebhookConfiguration", "bad", strings.Replace(good, c.from, c.to, 1))
		if code, text := sendRequest(t, cfg, "POST", validatingPath, body); code != 422 ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

// Proves S12.
func TestDenyAllWebhooksCanBeDeleted(t *testing.T) {
	h := newWebhookServer(
		t,
		map[string]func(*admissionv1.AdmissionRequest) string{
			"/": func(*admissionv1.AdmissionRequest) string { return `"allowed":false` },
		},
	)
	cfg := startConfig(t, stores["memory"](t), nil)
	createConfiguration(t, cfg, validatingPath, configurationObject("ValidatingWebhookConfiguration", "v",
		h.webhookConfig("w.example.com", "/",
			`,"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"],"operations":["*"]}]`)))
	if code, text := sendRequest(t, cfg, "POST", mapsPath, configMapObject("x", "")); code != 400 {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "DELETE", validatingPath+"/v", ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		if code, _ := sendRequest(t, cfg, "POST", mapsPath, configMapObject("x", "")); code == 201 {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("a webhook that was removed is asked")
		}
	}
}

// The next webhook sees what a webhook adds with its defaults.
func TestWebhookAdditionsAreDefaulted(t *testing.T) {
	var seen string
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/add": func(*admissionv1.AdmissionRequest) string {
			return encodedPatch(`[{"op":"add","path":"/spec/containers/-","value":{"name":"beside","image":"b"}}]`)
		},
		"/look": func(r *admissionv1.AdmissionRequest) string {
			seen = string(r.Object.Raw)
			return `"allowed":true`
		},
	})
	cfg := startConfig(t, stores["memory"](t), nil)
	const rules = `,"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]`
	createConfiguration(t, cfg, mutatingPath, configurationObject("MutatingWebhookConfiguration", "m",
		h.webhookConfig("add.example.com", "/add", rules), h.webhookConfig("look.example.com", "/look", rules)))
	code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/pods",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"a"}]}}`)
	const want = `{"name":"beside","image":"b","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}`
	if code != 201 || !strings.Contains(text, want) {
		t.Errorf("it comes to %d %s", code, text)
	}
	if !strings.Contains(seen, want) {
		t.Errorf("the next one sees %s", seen)
	}
}
