package gateway

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/ingress/route"
)

// unsupportedSetting returns which setting of a rule is not supported, or nil.
func unsupportedSetting(spec *gatewayv1.HTTPRouteRule) *verdict {
	refuse := func(format string, args ...any) *verdict {
		v := failVerdict(string(gatewayv1.RouteReasonUnsupportedValue), format, args...)
		return &v
	}
	switch {
	case spec.Retry != nil:
		return refuse("retry is not carried out")
	case spec.SessionPersistence != nil:
		return refuse("sessionPersistence is not carried out")
	}
	for _, m := range spec.Matches {
		if m.Path != nil {
			switch t := ptr.Deref(m.Path.Type, gatewayv1.PathMatchPathPrefix); t {
			case gatewayv1.PathMatchExact, gatewayv1.PathMatchPathPrefix:
			default:
				return refuse("paths are matched by Exact and PathPrefix, not by %s", t)
			}
		}
		for _, h := range m.Headers {
			if t := ptr.Deref(h.Type, gatewayv1.HeaderMatchExact); t != gatewayv1.HeaderMatchExact {
				return refuse("headers are matched by Exact, not by %s", t)
			}
		}
		for _, q := range m.QueryParams {
			if t := ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact); t != gatewayv1.QueryParamMatchExact {
				return refuse("query parameters are matched by Exact, not by %s", t)
			}
		}
	}
	of := map[gatewayv1.HTTPRouteFilterType]bool{}
	for _, f := range spec.Filters {
		switch f.Type {
		case gatewayv1.HTTPRouteFilterRequestHeaderModifier, gatewayv1.HTTPRouteFilterResponseHeaderModifier,
			gatewayv1.HTTPRouteFilterRequestRedirect, gatewayv1.HTTPRouteFilterURLRewrite:
			of[f.Type] = true
			if reason := invalidPart(&f); reason != "" {
				return refuse("filter %s: %s", f.Type, reason)
			}
		default:
			return refuse("filter %s is not carried out", f.Type)
		}
	}
	if of[gatewayv1.HTTPRouteFilterRequestRedirect] && of[gatewayv1.HTTPRouteFilterURLRewrite] {
		v := failVerdict(string(gatewayv1.RouteReasonIncompatibleFilters), "a rule cannot both redirect and rewrite")
		return &v
	}
	for _, ref := range spec.BackendRefs {
		for _, f := range ref.Filters {
			if f.Type != gatewayv1.HTTPRouteFilterRequestHeaderModifier &&
				f.Type != gatewayv1.HTTPRouteFilterResponseHeaderModifier {
				return refuse("filter %s of a backend is not carried out", f.Type)
			}
			if reason := invalidPart(&f); reason != "" {
				return refuse("filter %s of a backend: %s", f.Type, reason)
			}
		}
	}
	return nil
}

// framingFields are the fields that control message framing, the connection and the destination. Filters must not
// change them. A backend that sees another end of the message would treat the next request on the connection, of
// another client, as a part of it.
var framingFields = []string{
	"connection",
	"content-length",
	"host",
	"http2-settings",
	"keep-alive",
	"proxy-connection",
	"te",
	"trailer",
	"transfer-encoding",
	"upgrade",
}

// invalidPart returns which part of a filter is not valid in a message head, or "" if all is valid. The validation by
// the CRDs is incomplete.
func invalidPart(f *gatewayv1.HTTPRouteFilter) string {
	switch {
	case f.RequestHeaderModifier != nil:
		return invalidFields(f.RequestHeaderModifier)
	case f.ResponseHeaderModifier != nil:
		return invalidFields(f.ResponseHeaderModifier)
	case f.URLRewrite != nil:
		return invalidPath(f.URLRewrite.Path)
	case f.RequestRedirect != nil:
		return invalidPath(f.RequestRedirect.Path)
	}
	return ""
}

func invalidFields(f *gatewayv1.HTTPHeaderFilter) string {
	names := slices.Clone(f.Remove)
	for _, h := range slices.Concat(f.Set, f.Add) {
		if !httpguts.ValidHeaderFieldValue(h.Value) {
			return fmt.Sprintf("the value of %s is not one of a field", h.Name)
		}
		names = append(names, string(h.Name))
	}
	for _, name := range names {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Sprintf("%q is not the name of a field", name)
		}
		if slices.Contains(
			framingFields,
			strings.ReplaceAll(strings.ToLower(name), "_", "-"),
		) { // CGI-like programs cannot distinguish the underscore
			return fmt.Sprintf("field %s cannot be changed", name)
		}
	}
	return ""
}

func invalidPath(m *gatewayv1.HTTPPathModifier) string {
	if m == nil {
		return ""
	}
	for _, path := range []string{ptr.Deref(m.ReplaceFullPath, ""), ptr.Deref(m.ReplacePrefixMatch, "")} {
		if !route.IsValidPath(path) {
			return fmt.Sprintf("%q is not a path", path)
		}
	}
	return ""
}
