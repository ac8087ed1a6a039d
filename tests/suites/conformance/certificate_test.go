package conformance

import (
	"encoding/base64"
	"encoding/pem"
	"testing"
	"time"

	"clusterctl/certs"
)

// newRequests returns a function that creates another certificate signing request with each call.
func newRequests(t *testing.T, c *client) func() (o object, path string) {
	t.Helper()
	for _, s := range readSamples(t) {
		if s.Kind == "CertificateSigningRequest" {
			return func() (object, string) {
				o, name := s.newUnique("")
				return c.mustAnswer(t, 201, post(s.allPath(), o)).obj, s.allPath() + "/" + name
			}
		}
	}
	t.Fatal("there is no sample of a request")
	return nil
}

func decisionConditions(types ...string) []any {
	list := []any{}
	for _, t := range types {
		list = append(list, object{"type": t, "status": "True", "reason": "R", "message": "M"})
	}
	return list
}

// A signer can write the certificate once, and it must be PEM.
// Proves S12.
func TestIssuedCertificatesDoNotChange(t *testing.T) {
	c := sharedClient(t)
	request := newRequests(t, c)
	ca, err := certs.NewCA("signer", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.Issue(ca, certs.Admin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode(leaf.Cert)
	block := func(kind string, headers map[string]string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: bytes}))
	}
	coded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, r := range map[string]struct{ text, message string }{
		"no PEM":        {"none", "must contain at least one CERTIFICATE PEM block"},
		"a key with it": {string(leaf.Cert) + block("PRIVATE KEY", nil, []byte("k")), `only CERTIFICATE PEM blocks are allowed, found "PRIVATE KEY"`},
		"headers": {block("CERTIFICATE", map[string]string{"a": "b"}, der.Bytes), "no PEM block headers are " +
			"permitted"},
		"nothing in it":    {block("CERTIFICATE", nil, nil), "found CERTIFICATE PEM block containing 0 certificates"},
		"no certificate":   {block("CERTIFICATE", nil, []byte("x")), "x509"},
		"half of it wrong": {string(leaf.Cert) + block("CERTIFICATE", nil, []byte("x")), "x509"},
	} {
		o, path := request()
		a := c.mustRefuse(t, put(path+"/status", withValue(o, "status.certificate", coded(r.text))), 422, "Invalid",
			r.message)
		if valueAt(a.obj, "details.causes.0.field") != any("status.certificate") {
			t.Errorf("%s: %s", name, a.raw)
		}
	}

	o, path := request()
	o = c.mustAnswer(t, 200, put(path+"/approval",
		withValue(o, "status.conditions", decisionConditions("Approved")))).obj
	chain := coded("Subject: somebody\n" + string(leaf.Cert) + "\nSubject: signer\n" + string(ca.Cert))
	o = c.mustAnswer(t, 200, put(path+"/status", withValue(o, "status.certificate", chain))).obj
	for _, other := range []any{coded(string(leaf.Cert)), nil} {
		c.mustRefuse(t, put(path+"/status", withValue(o, "status.certificate", other)), 422, "Invalid",
			"updates may not modify existing certificate content")
	}
	same := c.mustAnswer(t, 200, put(path+"/status", withValue(o, "metadata.labels", object{"a": "b"})))
	if same.textAt("status.certificate") != chain {
		t.Errorf("the certificate is %s", same.textAt("status.certificate"))
	}
	if a := c.mustAnswer(t, 200, put(path, withValue(same.obj, "status.certificate", coded("none")))); a.textAt(
		"status.certificate") != chain {
		t.Errorf("a plain write changed the certificate: %s", a.raw)
	}

	// An approver cannot sign.
	o, path = request()
	if a := c.mustAnswer(t, 200, put(path+"/approval",
		withValue(withValue(o, "status.conditions", decisionConditions("Approved")), "status.certificate",
			chain))); a.valueAt("status.certificate") != nil {
		t.Errorf("an approval brought a certificate: %s", a.raw)
	}
}

// A decision on a request cannot be changed, and can only be made through the approval subresource.
// Proves S12.
func TestApprovalDecisionsDoNotChange(t *testing.T) {
	c := sharedClient(t)
	request := newRequests(t, c)
	for name, r := range map[string]struct {
		before     []any
		at         string
		conditions []any
		message    string
	}{
		"approved by status":   {nil, "/status", decisionConditions("Approved"), `updates may not add a condition of type "Approved"`},
		"denied by status":     {nil, "/status", decisionConditions("Failed", "Denied"), `updates may not add a condition of type "Denied"`},
		"taken back":           {decisionConditions("Approved"), "/approval", nil, `updates may not remove a condition of type "Approved"`},
		"taken back by status": {decisionConditions("Denied"), "/status", decisionConditions("Failed"), `updates may not remove a condition of type "Denied"`},
		"both": {decisionConditions("Approved"), "/approval", decisionConditions("Approved", "Denied"),
			"Approved and Denied conditions are mutually exclusive"},
		"twice": {decisionConditions("Approved"), "/approval", decisionConditions("Approved", "Approved"),
			"Duplicate value"},
		"failed and well again": {decisionConditions("Failed"), "/approval", nil, `updates may not remove a condition of type "Failed"`},
		"half approved":         {nil, "/approval", []any{object{"type": "Approved", "status": "False"}}, `supported values: "True"`},
		"neither nor":           {nil, "/approval", []any{object{"type": "Mine", "status": "Maybe"}}, `supported values: "False", "True", "Unknown"`},
		"of no type": {nil, "/approval", []any{object{"status": "True"}}, "status.conditions[0].type: " +
			"Required value"},
		"of no status": {nil, "/approval", []any{object{"type": "Mine"}}, "status.conditions[0].status: Required " +
			"value"},
	} {
		t.Run(name, func(t *testing.T) {
			o, path := request()
			if r.before != nil {
				o = c.mustAnswer(t, 200, put(path+"/approval", withValue(o, "status.conditions", r.before))).obj
			}
			c.mustRefuse(t, put(path+r.at, withValue(o, "status.conditions", r.conditions)), 422, "Invalid", r.message)
		})
	}
	o, path := request()
	o = c.mustAnswer(t, 200, put(path+"/approval",
		withValue(o, "status.conditions", decisionConditions("Approved")))).obj
	forged := append(decisionConditions("Failed"),
		object{"type": "Approved", "status": "True", "reason": "Forged", "message": "M"})
	a := c.mustAnswer(t, 200, put(path+"/status", withValue(o, "status.conditions", forged)))
	if a.textAt("status.conditions.0.type") != "Failed" || a.textAt("status.conditions.1.reason") != "R" {
		t.Errorf("conditions are %v", a.valueAt("status.conditions"))
	}
}
