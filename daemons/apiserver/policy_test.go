package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"clusterctl/daemons/apiserver"
)

const admissionPath = "/apis/admissionregistration.k8s.io/v1/"

func policyObject(kind, name, spec string) string {
	return fmt.Sprintf(
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["*"]}]}%s}}`,
		kind,
		name,
		spec,
	)
}

func bindingObject(kind, name, policy, spec string) string {
	return fmt.Sprintf(
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"spec":{"policyName":%q%s}}`,
		kind,
		name,
		policy,
		spec,
	)
}

// Proves S12.
func TestValidatingPoliciesReject(t *testing.T) {
	const deny = `,"validationActions":["Deny"]`
	for name, c := range map[string]struct {
		spec, binding, before string
		code                  int
		want                  string
	}{
		"in the expression's words": {`,"validations":[{"expression":"object.metadata.name != 'x'"}]`, deny, "", 422,
			`configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object.metadata.name != 'x'","reason":"Invalid"`},
		"in its message": {`,"validations":[{"expression":"false","message":"never","reason":"Forbidden"}]`, deny, "", 403, `denied request: never","reason":"Forbidden"`},
		"in a message of its own": {`,"variables":[{"name":"who","expression":"request.userInfo.username"},{"name":"twice","expression":"variables.who + variables.who"}],"validations":[{"expression":"variables.who == 'jane'","messageExpression":"'not for ' + variables.twice","message":"no"}]`,
			deny, "", 422, "denied request: not for system:anonymoussystem:anonymous"},
		"it agrees":                 {`,"validations":[{"expression":"object.data.size() == 1 && oldObject == null && namespaceObject.metadata.name == 'default' && request.operation == 'CREATE'"}]`, deny, "", 201, ""},
		"without a binding":         {`,"validations":[{"expression":"false"}]`, "", "", 201, ""},
		"with a warning":            {`,"validations":[{"expression":"false","message":"hm"}]`, `,"validationActions":["Warn","Audit"]`, "", 201, `Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': hm`},
		"a condition does not hold": {`,"matchConditions":[{"name":"c","expression":"object.metadata.name == 'y'"}],"validations":[{"expression":"false"}]`, deny, "", 201, ""},
		"it cannot be evaluated":    {`,"validations":[{"expression":"object.data.nope == 'x'"}]`, deny, "", 422, "resulted in error: no such key: nope"},
		"which may be ignored":      {`,"failurePolicy":"Ignore","validations":[{"expression":"object.data.nope == 'x'"}]`, deny, "", 201, ""},
		"the binding is about less": {`,"validations":[{"expression":"false"}]`, deny + `,"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}`, "", 201, ""},
		"names are left out":        {`,"validations":[{"expression":"false"}]`, deny + `,"matchResources":{"excludeResourceRules":[{"resourceNames":["x"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]}`, "", 201, ""},
		"a parameter decides": {`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"validations":[{"expression":"params.data.most != 'MQ=='"}]`,
			deny + `,"paramRef":{"name":"limits","parameterNotFoundAction":"Deny"}`, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"limits"},"stringData":{"most":"1"}}`, 422, "failed expression"},
		"a parameter is missing": {`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"validations":[{"expression":"true"}]`,
			deny + `,"paramRef":{"name":"limits","parameterNotFoundAction":"Deny"}`, "", 422, "no params found for policy binding with `Deny` parameterNotFoundAction"},
		"also where it would only warn": {`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"validations":[{"expression":"true"}]`,
			`,"validationActions":["Warn"],"paramRef":{"name":"limits","parameterNotFoundAction":"Deny"}`, "", 422,
			"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params " +
				"found"},
		"its parameters are of no kind": {`,"paramKind":{"apiVersion":"x.io/v1","kind":"Limit"},"validations":[{"expression":"true"}]`, `,"validationActions":["Audit"]`, "", 422,
			"ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource " +
				"referenced by paramKind: 'x.io/v1, Kind=Limit'"},
		"which is fine": {`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"validations":[{"expression":"false"}]`,
			deny + `,"paramRef":{"name":"limits","parameterNotFoundAction":"Allow"}`, "", 201, ""},
		"parameters are selected": {`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"validations":[{"expression":"params.metadata.name != 'limits'"}]`,
			deny + `,"paramRef":{"selector":{"matchLabels":{"a":"b"}},"parameterNotFoundAction":"Deny"}`, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"limits","labels":{"a":"b"}}}`, 422, "failed expression"},
		"its annotations cannot be made": {`,"auditAnnotations":[{"key":"k","valueExpression":"string(object.data.nope)"}]`, `,"validationActions":["Audit"]`, "", 422, "resulted in error: no such key: nope"},
		"its annotations are fine":       {`,"auditAnnotations":[{"key":"k","valueExpression":"'by ' + request.userInfo.username"}]`, `,"validationActions":["Audit"]`, "", 201, ""},
		"libraries are there":            {`,"validations":[{"expression":"quantity('1Gi').isGreaterThan(quantity('1Mi')) && isURL('https://x') && 'a1'.find('[0-9]') == '1' && ip('10.0.0.1').family() == 4 && [1,2].sum() == 3 && !authorizer.group('').resource('pods').check('get').allowed()"}]`, deny, "", 201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := startConfig(t, stores["memory"](t), nil)
			if c.before != "" {
				if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/secrets",
					c.before); code != 201 {
					t.Fatalf("%d %s", code, text)
				}
			}
			createConfiguration(t, cfg, admissionPath+"validatingadmissionpolicies",
				policyObject("ValidatingAdmissionPolicy", "p", c.spec))
			if c.binding != "" {
				createConfiguration(t, cfg, admissionPath+"validatingadmissionpolicybindings", bindingObject(
					"ValidatingAdmissionPolicyBinding", "b", "p", c.binding))
			}
			code, text := sendRequest(t, cfg, "POST", mapsPath,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}`)
			if code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("%d %s, want %d %s", code, text, c.code, c.want)
			}
		})
	}
}

// Proves S12.
func TestMutatingPoliciesMutate(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), func(*apiserver.Options) {})
	for name, mutation := range map[string]string{
		"a-apply": `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'by': variables.who.replace(':', '-')}}}"}}`,
		"b-json":  `{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'test', path: '/metadata/labels/by', value: 'system-anonymous'}, JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a.b'), value: 'set'}]"}}`,
	} {
		policy := policyObject(
			"MutatingAdmissionPolicy",
			name,
			`,"reinvocationPolicy":"IfNeeded","variables":[{"name":"who","expression":"request.userInfo.username"}],"matchConditions":[{"name":"c","expression":"has(object.data)"}],"mutations":[`+mutation+`]`,
		)
		policy = strings.Replace(policy, `"operations":["*"]`, `"operations":["CREATE","UPDATE"]`, 1)
		createConfiguration(t, cfg, admissionPath+"mutatingadmissionpolicies", policy)
		createConfiguration(t, cfg, admissionPath+"mutatingadmissionpolicybindings", bindingObject(
			"MutatingAdmissionPolicyBinding", name, name, ""))
	}
	code, text := sendRequest(t, cfg, "POST", mapsPath,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}`)
	if code != 201 || !strings.Contains(text, `"labels":{"by":"system-anonymous"}`) ||
		!strings.Contains(text, `"data":{"a":"1","a.b":"set"}`) {
		t.Errorf("%d %s", code, text)
	}
	code, text = sendRequest(t, cfg, "POST", mapsPath, configMapObject("y", ""))
	if code != 201 || strings.Contains(text, "labels") {
		t.Errorf("whose condition does not hold: %d %s", code, text)
	}
	createDefinition(t, cfg, crontabs, cronTabPath)
	policy := strings.Replace(
		policyObject(
			"MutatingAdmissionPolicy",
			"cron",
			`,"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{image: 'set:' + object.spec.cronSpec, jobs: [Object.spec.jobs{name: 'added', run: 'x'}]}}"}}]`,
		),
		`"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]`,
		`"apiGroups":["stable.example.com"],"apiVersions":["v1"],"resources":["crontabs"]`,
		1,
	)
	createConfiguration(t, cfg, admissionPath+"mutatingadmissionpolicies", policy)
	createConfiguration(t, cfg, admissionPath+"mutatingadmissionpolicybindings", bindingObject(
		"MutatingAdmissionPolicyBinding", "cron", "cron", ""))
	code, text = sendRequest(t, cfg, "POST", cronTabPath, cronTabObject("c", `,"jobs":[{"name":"own"}]`))
	if code != 201 || !strings.Contains(text, `"image":"set:* * * * */5"`) ||
		!strings.Contains(text, `{"name":"own"}`) ||
		!strings.Contains(text, `{"name":"added","run":"x"}`) {
		t.Errorf("%d %s", code, text)
	}
}

// The result of a mutating policy depends neither on changes by other policies nor on their failures.
func TestMutatingPoliciesMatchTheSentObject(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	label := func(key, value string) string {
		return `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'` + key + `': ` + value + `}}}"}}`
	}
	policy := func(name, spec, binding string) {
		t.Helper()
		body := strings.Replace(policyObject("MutatingAdmissionPolicy", name, `,"reinvocationPolicy":"Never"`+spec),
			`"operations":["*"]`, `"operations":["CREATE","UPDATE"]`, 1)
		createConfiguration(t, cfg, admissionPath+"mutatingadmissionpolicies", body)
		createConfiguration(t, cfg, admissionPath+"mutatingadmissionpolicybindings", bindingObject(
			"MutatingAdmissionPolicyBinding", name, name, binding))
	}
	policy("a", `,"failurePolicy":"Ignore","mutations":[`+label("first", "object.data.nope")+","+label("by", "'a'")+`]`,
		"")
	policy("b", `,"mutations":[`+label("selected", "'yes'")+`]`,
		`,"matchResources":{"objectSelector":{"matchLabels":{"by":"a"}}}`)
	code, text := sendRequest(t, cfg, "POST", mapsPath,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}`)
	if code != 201 || !strings.Contains(text, `"labels":{"by":"a"}`) {
		t.Errorf("%d %s", code, text)
	}
	policy(
		"c",
		`,"matchConditions":[{"name":"only","expression":"object.metadata.name == 'y'"}],"mutations":[`+label("c",
			"object.data.nope")+`]`,
		"",
	)
	policy(
		"d",
		`,"paramKind":{"apiVersion":"v1","kind":"Secret"},"matchConditions":[{"name":"only","expression":"object.metadata.name == 'y'"}],"mutations":[`+label(
			"d",
			"'d'",
		)+`]`,
		`,"matchResources":{"objectSelector":{"matchLabels":{"params":"missing"}}},"paramRef":{"name":"none","parameterNotFoundAction":"Deny"}`,
	)
	code, text = sendRequest(t, cfg, "POST", mapsPath,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"y"},"data":{"a":"1"}}`)
	if code != 403 || !strings.Contains(text, `"message":"policy 'c' with binding 'c' denied request: `) ||
		!strings.Contains(text, `"reason":"Invalid"`) {
		t.Errorf("a mutation that failed: %d %s", code, text)
	}
	code, text = sendRequest(t, cfg, "POST", mapsPath,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"y","labels":{"params":"missing"}},"data":{"a":"1"}}`)
	if code != 403 ||
		!strings.Contains(text,
			`"message":"policy 'd' with binding 'd' denied request: failed to configure binding: no params found`) ||
		!strings.Contains(text, `"reason":"Forbidden"`) ||
		!strings.Contains(text, `{"message":"policy 'c' with binding 'c' denied request: `) {
		t.Errorf("a parameter that is missing, and a mutation that failed: %d %s", code, text)
	}
}

// Proves S12.
func TestInvalidPoliciesAreRejected(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	path := admissionPath + "validatingadmissionpolicies"
	good := policyObject("ValidatingAdmissionPolicy", "p", `,"validations":[{"expression":"object.metadata.name != 'x'"}]`)
	code, text := sendRequest(t, cfg, "POST", path, good)
	for _, want := range []string{`"failurePolicy":"Fail"`, `"matchPolicy":"Equivalent"`, `"scope":"*"`} {
		if code != 201 || !strings.Contains(text, want) {
			t.Fatalf("%d %s lacks %s", code, text, want)
		}
	}
	for name, c := range map[string]struct{ kind, from, to, want string }{
		"expressions compile": {"", "object.metadata.name !=", "objekt.metadata.name " +
			"!=", "undeclared reference to 'objekt'"},
		"and are true or false": {"", "object.metadata.name != 'x'", "1", "must evaluate to bool"},
		"parameters are declared": {"", "object.metadata.name != 'x'", "params.x == 1", "undeclared " +
			"reference to 'params'"},
		"something is validated":          {"", `"validations":[{"expression":"object.metadata.name != 'x'"}]`, `"validations":[]`, "validations or auditAnnotations must be non-empty"},
		"something is matched":            {"", `"resourceRules"`, `"excludeResourceRules"`, "spec.matchConstraints.resourceRules: Required value"},
		"reasons are known":               {"", `"object.metadata.name != 'x'"`, `"false","reason":"Because"`, "Unsupported value"},
		"variables come before their use": {"", `"validations"`, `"variables":[{"name":"a","expression":"variables.b"},{"name":"b","expression":"1"}],"validations"`, "undefined field 'b'"},
		"mutations have types":            {"MutatingAdmissionPolicy", `"validations":[{"expression":"object.metadata.name != 'x'"}]`, `"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"1"}}]`, "must evaluate to list"},
		"and are said to be made again":   {"MutatingAdmissionPolicy", `"validations":[{"expression":"object.metadata.name != 'x'"}]`, `"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'remove', path: '/x'}]"}}]`, "spec.reinvocationPolicy: Required value"},
	} {
		body, to := strings.Replace(good, c.from, c.to, 1), path
		if c.kind != "" {
			body, to = strings.Replace(body, "ValidatingAdmissionPolicy", c.kind,
				1), admissionPath+"mutatingadmissionpolicies"
		}
		if code, text := sendRequest(t, cfg, "POST", to, strings.Replace(body, `"name":"p"`, `"name":"bad"`, 1)); code != 422 ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	for name, c := range map[string]struct{ spec, want string }{
		"a binding acts":          {``, "at least one validation action is required"},
		"and says things once":    {`,"validationActions":["Deny","Warn"]`, "must not contain both Deny and Warn"},
		"and finds its parameter": {`,"validationActions":["Deny"],"paramRef":{"parameterNotFoundAction":"Deny"}`, "one of name or selector must be specified"},
	} {
		body := bindingObject("ValidatingAdmissionPolicyBinding", "bad", "p", c.spec)
		if code, text := sendRequest(t, cfg, "POST", admissionPath+"validatingadmissionpolicybindings",
			body); code != 422 ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}
