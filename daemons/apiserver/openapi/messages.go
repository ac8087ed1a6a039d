package openapi

import (
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file has the messages of OpenAPIv2.proto, by the names of their JSON members.

func documentMessage() *message {
	schema := schemaMessage()
	parameter := parameterEncoder(schema)
	response := responseEncoder(schema)
	requirement := mapOf(func(b []byte, v any) []byte { return many(1, text)(b, v) })
	return &message{extensions: 16, members: map[string]member{
		"swagger": text(1), "info": one(2, infoMessage().encode), "host": text(3), "basePath": text(4),
		"schemes": many(5, text), "consumes": many(6, text), "produces": many(7, text),
		"paths":       one(8, pathsMessage(schema, requirement).encode),
		"definitions": one(9, mapOf(schema)), "parameters": one(10, mapOf(parameter)),
		"responses": one(11, mapOf(response)), "security": listed(12, requirement),
		"securityDefinitions": one(13, mapOf(encodeSecurity)), "tags": listed(14, tagMessage().encode),
		"externalDocs": one(15, externalDocs().encode),
	}}
}

func infoMessage() *message {
	contact := &message{extensions: 4, members: map[string]member{"name": text(1), "url": text(2), "email": text(3)}}
	license := &message{extensions: 3, members: map[string]member{"name": text(1), "url": text(2)}}
	return &message{extensions: 7, members: map[string]member{
		"title": text(1), "version": text(2), "description": text(3), "termsOfService": text(4),
		"contact": one(5, contact.encode), "license": one(6, license.encode),
	}}
}

func externalDocs() *message {
	return &message{extensions: 3, members: map[string]member{"description": text(1), "url": text(2)}}
}

func tagMessage() *message {
	return &message{extensions: 4, members: map[string]member{
		"name": text(1), "description": text(2), "externalDocs": one(3, externalDocs().encode),
	}}
}

func pathsMessage(schema, requirement encoder) *message {
	parameters := listed(9, parametersItem(schema))
	operation := &message{extensions: 13, members: map[string]member{
		"tags": many(1, text), "summary": text(2), "description": text(3),
		"externalDocs": one(4, externalDocs().encode), "operationId": text(5),
		"produces": many(6, text), "consumes": many(7, text), "parameters": listed(8, parametersItem(schema)),
		"responses": one(9, responsesMessage(schema).encode), "schemes": many(10, text),
		"deprecated": boolean(11), "security": listed(12, requirement),
	}}
	item := &message{extensions: 10, members: map[string]member{"$ref": text(1), "parameters": parameters}}
	for i, method := range []string{"get", "put", "post", "delete", "options", "head", "patch"} {
		item.members[method] = one(protowire.Number(2+i), operation.encode)
	}
	return &message{extensions: 1, others: namedField(2, item.encode)}
}

func responsesMessage(schema encoder) *message {
	response := responseEncoder(schema)
	value := func(b []byte, v any) []byte {
		if isReference(v) {
			return one(2, encodeReference)(b, v)
		}
		return one(1, response)(b, v)
	}
	return &message{extensions: 2, others: namedField(1, value)}
}

func responseEncoder(schema encoder) encoder {
	file := &message{extensions: 10, members: map[string]member{
		"format": text(1), "title": text(2), "description": text(3), "default": one(4, encodeAny),
		"required": many(5, text), "type": text(6), "readOnly": boolean(7),
		"externalDocs": one(8, externalDocs().encode), "example": one(9, encodeAny),
	}}
	item := func(b []byte, v any) []byte {
		if o, _ := v.(map[string]any); o["type"] == "file" {
			return one(2, file.encode)(b, v)
		}
		return one(1, schema)(b, v)
	}
	header := &message{extensions: 19, members: primitive(1)}
	header.members["description"] = text(18)
	return (&message{extensions: 5, members: map[string]member{
		"description": text(1), "schema": one(2, item), "headers": one(3, mapOf(header.encode)),
		"examples": one(4, mapOf(encodeAny)),
	}}).encode
}

func isReference(v any) bool {
	o, _ := v.(map[string]any)
	_, is := o["$ref"].(string)
	return is
}

func encodeReference(b []byte, v any) []byte {
	return (&message{members: map[string]member{"$ref": text(1), "description": text(2)}}).encode(b, v)
}

// parametersItem encodes a parameter or a reference to one.
func parametersItem(schema encoder) encoder {
	parameter := parameterEncoder(schema)
	return func(b []byte, v any) []byte {
		if isReference(v) {
			return one(2, encodeReference)(b, v)
		}
		return one(1, parameter)(b, v)
	}
}

func parameterEncoder(schema encoder) encoder {
	body := &message{extensions: 6, members: map[string]member{
		"description": text(1), "name": text(2), "in": text(3), "required": boolean(4), "schema": one(5, schema),
	}}
	// Other parameters differ in one member, which changes the numbers of all members after it.
	plain := func(emptyValue bool) encoder {
		first := protowire.Number(5)
		if emptyValue {
			first = 6
		}
		m := &message{extensions: first + 17, members: primitive(first)}
		maps.Copy(
			m.members,
			map[string]member{"required": boolean(1), "in": text(2), "description": text(3), "name": text(4)},
		)
		if emptyValue {
			m.members["allowEmptyValue"] = boolean(5)
		}
		return m.encode
	}
	places := map[any]member{
		"header": one(
			1,
			plain(false),
		), "formData": one(2, plain(true)), "query": one(3, plain(true)), "path": one(4, plain(false)),
	}
	return func(b []byte, v any) []byte {
		o, _ := v.(map[string]any)
		place, ok := o["in"].(string)
		if !ok {
			return b
		}
		if place == "body" {
			return one(1, body.encode)(b, v)
		}
		if encode := places[place]; encode != nil {
			return one(2, encoder(encode))(b, v)
		}
		return b
	}
}

// primitive returns the members of values that are not objects; the first has the number first, the others follow.
func primitive(first protowire.Number) map[string]member {
	n := func(i protowire.Number) protowire.Number { return first + i }
	items := func(b []byte, v any) []byte {
		return (&message{extensions: 18, members: primitive(1)}).encode(b, v)
	}
	return map[string]member{
		"type": text(n(0)), "format": text(n(1)), "items": one(n(2), items), "collectionFormat": text(n(3)),
		"default": one(n(4), encodeAny), "maximum": double(n(5)), "exclusiveMaximum": boolean(n(6)),
		"minimum": double(n(7)), "exclusiveMinimum": boolean(n(8)), "maxLength": integer(n(9)),
		"minLength": integer(n(10)), "pattern": text(n(11)), "maxItems": integer(n(12)), "minItems": integer(n(13)),
		"uniqueItems": boolean(n(14)), "enum": listed(n(15), encodeAny), "multipleOf": double(n(16)),
	}
}

func schemaMessage() encoder {
	m := &message{extensions: 31}
	items := func(b []byte, v any) []byte {
		if _, list := v.([]any); list {
			return listed(1, m.encode)(b, v)
		}
		return one(1, m.encode)(b, v)
	}
	additional := func(b []byte, v any) []byte {
		if _, is := v.(bool); is {
			return boolean(2)(b, v)
		}
		return one(1, m.encode)(b, v)
	}
	kind := func(b []byte, v any) []byte {
		if _, list := v.([]any); list {
			return many(1, text)(b, v)
		}
		return text(1)(b, v)
	}
	xml := &message{extensions: 6, members: map[string]member{
		"name": text(1), "namespace": text(2), "prefix": text(3), "attribute": boolean(4), "wrapped": boolean(5),
	}}
	m.members = map[string]member{
		"$ref": text(1), "format": text(2), "title": text(3), "description": text(4), "default": one(5, encodeAny),
		"multipleOf": double(6), "maximum": double(7), "exclusiveMaximum": boolean(8), "minimum": double(9),
		"exclusiveMinimum": boolean(10), "maxLength": integer(11), "minLength": integer(12), "pattern": text(13),
		"maxItems": integer(14), "minItems": integer(15), "uniqueItems": boolean(16), "maxProperties": integer(17),
		"minProperties": integer(18), "required": many(19, text), "enum": listed(20, encodeAny),
		"additionalProperties": one(21, additional), "type": one(22, kind), "items": one(23, items),
		"allOf": listed(24, m.encode), "properties": one(25, mapOf(m.encode)), "discriminator": text(26),
		"readOnly": boolean(27), "xml": one(28, xml.encode), "externalDocs": one(29, externalDocs().encode),
		"example": one(30, encodeAny),
	}
	return m.encode
}

// encodeSecurity encodes one security scheme, which is one of six messages.
func encodeSecurity(b []byte, v any) []byte {
	o, _ := v.(map[string]any)
	scopes := mapOfTexts()
	switch kind, flow := o["type"], o["flow"]; {
	case kind == "basic":
		m := &message{extensions: 3, members: map[string]member{"type": text(1), "description": text(2)}}
		return one(1, m.encode)(b, v)
	case kind == "apiKey":
		m := &message{extensions: 5, members: map[string]member{
			"type": text(1), "name": text(2), "in": text(3), "description": text(4),
		}}
		return one(2, m.encode)(b, v)
	case kind != "oauth2":
		return b
	case flow == "implicit":
		m := &message{extensions: 6, members: map[string]member{
			"type": text(
				1,
			), "flow": text(2), "scopes": one(3, scopes), "authorizationUrl": text(4), "description": text(5),
		}}
		return one(3, m.encode)(b, v)
	case flow == "password", flow == "application":
		m := &message{extensions: 6, members: map[string]member{
			"type": text(1), "flow": text(2), "scopes": one(3, scopes), "tokenUrl": text(4), "description": text(5),
		}}
		if flow == "password" {
			return one(4, m.encode)(b, v)
		}
		return one(5, m.encode)(b, v)
	case flow == "accessCode":
		m := &message{extensions: 7, members: map[string]member{
			"type": text(1), "flow": text(2), "scopes": one(3, scopes), "authorizationUrl": text(4),
			"tokenUrl": text(5), "description": text(6),
		}}
		return one(6, m.encode)(b, v)
	}
	return b
}

// mapOfTexts returns the encoder of an object with arbitrary keys and string values.
func mapOfTexts() encoder {
	each := one(1, func(b []byte, v any) []byte {
		e, _ := v.(entry)
		return text(2)(text(1)(b, e.name), e.value)
	})
	return (&message{others: each}).encode
}
