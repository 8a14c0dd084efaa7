// Everything below the torch line.
#pragma once

