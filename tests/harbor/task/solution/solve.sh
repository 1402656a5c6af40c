#!/bin/bash
set -e
mkdir -p /app
ask patient "How long has it hurt?" > /app/answer.txt
