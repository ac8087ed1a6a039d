package conformance

import (
	"encoding/base64"
	"encoding/pem"
	"testing"
	"time"

	"clusterctl/certs"
)

// requests returns a function that creates another certificate signing request with each call.
func requests(t *testing.T, c *client) func() (o object, path string) {
	t.Helper()
	for _, s := range samples(t) {
		if s.Kind == "CertificateSigningRequest" {
			return func() (object, string) {
				o, name := s.make("")
				return c.must(t, 201, post(s.everywhere(), o)).obj, s.everywhere() + "/" + name
			}
		}
	}
	t.Fatal("there is no sample of a request")
	return nil
}

func decision(types ...string) []any {
	list := []any{}
	for _, t := range types {
		list = append(list, object{"type": t, "status": "True", "reason": "R", "message": "M"})
	}
	return list
}

// A signer can write the certificate once, and it must be PEM.
// Proves S12.
func TestACertificateIsOneAndStays(t *testing.T) {
	c := shared(t)
	request := requests(t, c)
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
		a := c.refused(t, put(path+"/status", with(o, "status.certificate", coded(r.text))), 422, "Invalid", r.message)
		if at(a.obj, "details.causes.0.field") != any("status.certificate") {
			t.Errorf("%s: %s", name, a.raw)
		}
	}

	o, path := request()
	o = c.must(t, 200, put(path+"/approval", with(o, "status.conditions", decision("Approved")))).obj
	chain := coded("Subject: somebody\n" + string(leaf.Cert) + "\nSubject: signer\n" + string(ca.Cert))
	o = c.must(t, 200, put(path+"/status", with(o, "status.certificate", chain))).obj
	for _, other := range []any{coded(string(leaf.Cert)), nil} {
		c.refused(
			t,
			put(path+"/status", with(o, "status.certificate", other)),
			422,
			"Invalid",
			"updates may not modify existing certificate content",
		)
	}
	same := c.must(t, 200, put(path+"/status", with(o, "metadata.labels", object{"a": "b"})))
	if same.text("status.certificate") != chain {
		t.Errorf("the certificate is %s", same.text("status.certificate"))
	}
	if a := c.must(t, 200, put(path, with(same.obj, "status.certificate", coded("none")))); a.text(
		"status.certificate",
	) != chain {
		t.Errorf("a plain write changed the certificate: %s", a.raw)
	}

	// An approver cannot sign.
	o, path = request()
	if a := c.must(t, 200, put(path+"/approval",
		with(with(o, "status.conditions", decision("Approved")), "status.certificate", chain))); a.at(
		"status.certificate",
	) != nil {
		t.Errorf("an approval brought a certificate: %s", a.raw)
	}
}

// A decision on a request cannot be changed, and can only be made through the approval subresource.
// Proves S12.
func TestDecisionsStay(t *testing.T) {
	c := shared(t)
	request := requests(t, c)
	for name, r := range map[string]struct {
		before     []any
		at         string
		conditions []any
		message    string
	}{
		"approved by status":   {nil, "/status", decision("Approved"), `updates may not add a condition of type "Approved"`},
		"denied by status":     {nil, "/status", decision("Failed", "Denied"), `updates may not add a condition of type "Denied"`},
		"taken back":           {decision("Approved"), "/approval", nil, `updates may not remove a condition of type "Approved"`},
		"taken back by status": {decision("Denied"), "/status", decision("Failed"), `updates may not remove a condition of type "Denied"`},
		"both": {decision("Approved"), "/approval", decision("Approved", "Denied"),
			"Approved and Denied conditions are mutually exclusive"},
		"twice": {decision("Approved"), "/approval", decision("Approved", "Approved"),
			"Duplicate value"},
		"failed and well again": {decision("Failed"), "/approval", nil, `updates may not remove a condition of type "Failed"`},
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
				o = c.must(t, 200, put(path+"/approval", with(o, "status.conditions", r.before))).obj
			}
			c.refused(t, put(path+r.at, with(o, "status.conditions", r.conditions)), 422, "Invalid", r.message)
		})
	}
	o, path := request()
	o = c.must(t, 200, put(path+"/approval", with(o, "status.conditions", decision("Approved")))).obj
	forged := append(
		decision("Failed"),
		object{"type": "Approved", "status": "True", "reason": "Forged", "message": "M"},
	)
	a := c.must(t, 200, put(path+"/status", with(o, "status.conditions", forged)))
	if a.text("status.conditions.0.type") != "Failed" || a.text("status.conditions.1.reason") != "R" {
		t.Errorf("conditions are %v", a.at("status.conditions"))
	}
}
