package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
)

// lineOf is a value as compact JSON with sorted keys, without HTML escapes, ending in a line feed.
func lineOf(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return out.Bytes(), err
}

// mustJSON is for values that are made to be JSON.
func mustJSON(value any) string {
	line, err := lineOf(value)
	if err != nil {
		panic(err)
	}
	return string(bytes.TrimSuffix(line, []byte("\n")))
}

// writeLines writes each value on a line of a file.
func writeLines[T any](path string, values []T) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	for _, value := range values {
		if err := writeLine(out, value); err != nil {
			file.Close()
			return err
		}
	}
	if err := out.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func writeLine(out io.Writer, value any) error {
	line, err := lineOf(value)
	if err != nil {
		return err
	}
	_, err = out.Write(line)
	return err
}
