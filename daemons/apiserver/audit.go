package apiserver

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/audit"
)

// trail is what the audit log is told of one request.
type trail struct {
	auditor  *audit.Auditor
	decision *audit.Decision
	event    auditv1.Event // what all stages have in common
	refused  bool          // the user is not known
	panicked bool
	answer   *bytes.Buffer // what is sent, where it is kept
}

// audit is the stage that decides what is kept about a request. It comes as soon as the user
// is known, before any impersonation.
func (s *Server) audit(q *request) error {
	if s.o.Auditor == nil {
		return nil
	}
	q.trail = s.trailOf(q)
	s.received(q)
	if q.trail != nil && q.long() {
		q.w.(*recorder).onHeader = func(code int) {
			q.trail.event.ResponseStatus = &metav1.Status{Code: int32(code)}
			q.trail.keep(auditv1.StageResponseStarted, s)
		}
	}
	return nil
}

// received has it kept that a request is there.
func (s *Server) received(q *request) {
	if q.judged != nil {
		s.o.Auditor.Counted(q.judged)
	}
	if q.trail != nil {
		q.trail.keep(auditv1.StageRequestReceived, s)
	}
}

// unknown has it kept that somebody asked whose credentials are not good.
func (s *Server) unknown(q *request) {
	if s.o.Auditor == nil {
		return
	}
	q.user = api.User{}
	q.trail = s.trailOf(q)
	s.o.Auditor.Counted(q.judged)
	if q.trail != nil {
		q.trail.refused = true
	}
}

// trailOf returns the trail of a request, nil when nothing is kept about it.
func (s *Server) trailOf(q *request) *trail {
	d := s.o.Auditor.Policy.Decide(q.user, q.Request)
	q.judged = d
	if d.Level == auditv1.LevelNone {
		return nil
	}
	t := &trail{auditor: s.o.Auditor, decision: d}
	id := q.w.Header().Get(auditv1.HeaderAuditID)
	t.event = auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    d.Level, AuditID: types.UID(id), RequestURI: q.http.URL.RequestURI(), Verb: q.Verb,
		User: userInfo(q.user), SourceIPs: sourceIPs(q.http), UserAgent: q.http.UserAgent(),
		RequestReceivedTimestamp: metav1.NewMicroTime(s.o.Now()),
	}
	if q.Resource {
		t.event.ObjectRef = &auditv1.ObjectReference{
			Resource: q.GroupVersionResource.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name,
			APIGroup: q.Group, APIVersion: q.GroupVersionResource.Version,
		}
	}
	return t
}

// longestAuditID bounds the names that clients give their requests.
const longestAuditID = 64

// nameForAudit has every answer tell the name of its request, by which its user and those who read the audit log mean
// the same: the one that the request brings, or else a new one. Names are told apart, and are no secrets.
func (q *request) nameForAudit() {
	id := q.http.Header.Get(auditv1.HeaderAuditID)
	if id == "" || len(id) > longestAuditID {
		var bytes uuid.UUID
		binary.NativeEndian.PutUint64(bytes[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(bytes[8:], rand.Uint64())
		bytes[6], bytes[8] = bytes[6]&0x0f|0x40, bytes[8]&0x3f|0x80 // version 4, as others write it
		id = bytes.String()
	}
	q.w.Header().Set(auditv1.HeaderAuditID, id)
}

// keep hands a copy of the event on, if the policy keeps the stage.
func (t *trail) keep(stage auditv1.Stage, s *Server) {
	if !t.decision.Keeps(stage) {
		return
	}
	e := t.event
	e.Stage, e.StageTimestamp = stage, metav1.NewMicroTime(s.o.Now())
	e.Annotations = maps.Clone(e.Annotations)
	if e.ObjectRef != nil {
		ref := *e.ObjectRef
		e.ObjectRef = &ref
	}
	t.auditor.Keep(&e)
}

// named notes the name of an object that got it only now.
func (t *trail) named(namespace, name string) {
	if t != nil && t.event.ObjectRef != nil && t.event.ObjectRef.Name == "" {
		t.event.ObjectRef.Namespace, t.event.ObjectRef.Name = namespace, name
	}
}

// annotate notes what a stage has found out.
func (t *trail) annotate(key, value string) {
	if t == nil {
		return
	}
	if t.event.Annotations == nil {
		t.event.Annotations = map[string]string{}
	}
	t.event.Annotations[key] = value
}

// kept says whether anything is kept of the request, with what it contains where that is meant.
func (t *trail) kept(contents bool) bool {
	if t == nil || !contents {
		return t != nil
	}
	request, _ := t.decision.Bodies()
	return request
}

// authorized notes whether the user may, and why.
func (t *trail) authorized(why string, err error) {
	decision := "allow"
	if err != nil {
		decision = "forbid"
	}
	t.annotate("authorization.k8s.io/decision", decision)
	t.annotate("authorization.k8s.io/reason", why)
}

// impersonates notes as whom the user asks, and under which constraint.
func (t *trail) impersonates(u api.User, constraint string) {
	if t != nil {
		info := userInfo(u)
		t.event.ImpersonatedUser = &info
		if constraint != "" {
			t.event.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
		}
	}
}

// audited keeps the end of a request.
func (s *Server) audited(q *request, rec *recorder) {
	t := q.trail
	if t == nil {
		return
	}
	status := metav1.Status{}
	if t.event.ResponseStatus != nil {
		status = *t.event.ResponseStatus
	}
	status.Code = int32(rec.code)
	t.event.ResponseStatus = &status
	if t.answer != nil {
		t.event.ResponseObject = t.json(s, rec.Header().Get("Content-Type"), t.answer.Bytes())
	}
	switch {
	case t.panicked:
		t.keep(auditv1.StagePanic, s)
	case t.refused:
		t.keep(auditv1.StageResponseStarted, s) // as upstream
	default:
		t.keep(auditv1.StageResponseComplete, s)
	}
}

func userInfo(u api.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}

// sourceIPs are where a request says that it comes from, and where it does come from last.
func sourceIPs(r *http.Request) (list []string) {
	add := func(text string) {
		if ip := net.ParseIP(strings.TrimSpace(text)); ip != nil && len(list) < 16 {
			list = append(list, ip.String())
		}
	}
	for text := range header.Elements(r.Header, "X-Forwarded-For") {
		add(text)
	}
	if len(list) == 0 {
		add(r.Header.Get("X-Real-Ip"))
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && (len(list) == 0 || list[len(list)-1] != host) {
		add(host)
	}
	return list
}
